"""The catalogue of configurations: short names, and what they mean."""

from ocr.advisor.catalogue import CATALOGUE


def test_a_configuration_is_named_in_few_words_and_explained_in_more():
    for name, one in CATALOGUE.items():
        assert name == one.name
        assert len(one.name.split()) <= 4
        assert len(one.about.split()) > len(one.name.split())
