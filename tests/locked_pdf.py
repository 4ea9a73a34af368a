"""A PDF that nobody can open."""

# An empty page behind a user password: the entries /O and /U fit no password at all.
LOCKED_PDF = b"""%%PDF-1.4
1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj
2 0 obj <</Type/Pages/Kids[3 0 R]/Count 1>> endobj
3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 72 72]>> endobj
4 0 obj <</Filter/Standard/V 1/R 2/P -4/O<%s>/U<%s>>> endobj
trailer <</Root 1 0 R/Encrypt 4 0 R/ID[<00><00>]/Size 5>>
%%%%EOF
""" % (b"11" * 32, b"22" * 32)
