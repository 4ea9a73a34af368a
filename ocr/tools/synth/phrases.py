"""The words that receipts are made of. All shops, streets and numbers are invented."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SHOP_FIRST = (
    "Golden", "Harbour", "Lim Seng", "North Star", "Blue Fern", "Sunrise", "Old Mill", "Kedai Maju",
    "Perniagaan Jaya", "Green Valley", "Union", "Red Lantern", "Orchard", "Papyrus", "Nordic", "Tanjung",
    "Silver Birch", "Corner", "Bintang", "River Bank", "Riverside", "Three Kings", "Lucky", "Mountain", "Evergreen",
    "Central", "Royal", "Ah Hock", "Familia",
)  # fmt: skip
SHOP_KIND = (
    "Hardware", "Stationery & Books", "Restaurant", "Mini Market", "Bakery", "Pharmacy", "Cafe", "Grocer",
    "Electrical", "Trading", "Supermarket", "Books", "Bistro", "Petrol Station", "Home Centre", "Seafood",
    "Coffee House", "Auto Parts",
)  # fmt: skip
SHOP_FORM = ("", "", "Sdn Bhd", "Ltd", "Inc.", "Enterprise", "& Sons", "Co.", "GmbH", "(M) Sdn. Bhd.")
STREETS = (
    "Jalan Mawar", "Station Road", "Harbour Street", "Lorong Kenari 4", "Mill Lane", "King's Avenue",
    "Jalan SS 15/4B", "Market Square", "Taman Desa Indah", "Kirchweg", "Elm Street", "Persiaran Utama", "Church Hill",
    "Ocean Drive",
)  # fmt: skip
TOWNS = (
    "Port Merrow", "Ashby Falls", "Kampung Baru", "Linden", "Westhaven", "Batu Lima", "Norrvik", "Saint Oswald",
    "Johor Selatan", "East Wick", "Pinewood", "Seri Damai", "Old Quay",
)  # fmt: skip
ITEM_FIRST = (
    "Fresh", "Org.", "White", "PVC", "Iced", "Large", "Mini", "Cotton", "Steel", "Spicy", "Premium", "A4", "Grilled",
    "LED", "Choc", "Green", "Brown", "Hot", "Double", "Nylon", "Frozen", "Baby", "Classic", "Red", "Wood", "Extra",
    "Low fat", "Sweet",
)  # fmt: skip
ITEM_NOUN = (
    "milk 1L", "bread", "rice 5kg", "tea", "coffee", "nails 2in", "paper 80g", "glove (dozen)", "noodle soup",
    "fried rice", "battery AA", "ball pen", "soap bar", "egg 10s", "butter 250g", "cable 3m", "bulb 9W",
    "chicken chop", "orange juice", "yoghurt", "apple", "banana", "tape 48mm", "valve 1/2\"", "cement 50kg", "brush",
    "notebook", "envelope", "shampoo 400ml", "tissue 4x", "salmon", "pizza slice", "burger", "cheese", "water 1.5L",
    "soda", "croissant", "paint 1L", "hinge", "screw M4",
)  # fmt: skip
PERSONS = ("Mei", "Anna", "Farid", "Jonas", "Siti", "Carlos", "Ines", "Tom W.", "Admin", "USER", "C02", "Raj")
FAREWELLS = (
    "Thank you, please come again", "GOODS SOLD ARE NOT RETURNABLE", "Exchange allowed within 7 days",
    "Have a nice day!", "Prices include GST where applicable", "Follow us online @ourshop", "No cash refund",
    "Please keep this receipt", "Customer copy", "Terima kasih", "Thank you for shopping with us",
    "Your opinion counts: www.ourshop.example", "This is a computer generated invoice",
    "Strictly no refund for sale items",
)  # fmt: skip
TITLES = (
    "TAX INVOICE",
    "SIMPLIFIED TAX INVOICE",
    "RECEIPT",
    "CASH BILL",
    "INVOICE",
    "SALES RECEIPT",
    "OFFICIAL RECEIPT",
)
STAMPS = ("PAID", "CASH", "COPY", "RECEIVED", "POSTED", "APPROVED", "DUPLICATE")
SLOGANS = (
    "Quality since 1974",
    "Always fresh",
    "Your neighbourhood store",
    "Best price in town",
    "Eat well, live well",
)
CURRENCIES = ("", "", "", "RM", "RM ", "$", "$ ", "USD ", "EUR ")


def pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    """One of the options."""
    return options[int(rng.integers(len(options)))]


def chance(rng: np.random.Generator, share: float) -> bool:
    """True in that share of the calls."""
    return bool(rng.random() < share)


def number(rng: np.random.Generator, digits: int) -> str:
    """A number with leading zeros."""
    return f"{int(rng.integers(10**digits)):0{digits}d}"


def date(rng: np.random.Generator) -> str:
    """A date in one of the ways that tills print it."""
    day, month, year = int(rng.integers(1, 29)), int(rng.integers(1, 13)), int(rng.integers(2012, 2026))
    forms = (
        f"{day:02d}/{month:02d}/{year}",
        f"{year}-{month:02d}-{day:02d}",
        f"{day:02d}-{month:02d}-{year % 100:02d}",
        f"{day:02d}.{month:02d}.{year}",
    )
    return pick(rng, forms)


def time(rng: np.random.Generator) -> str:
    """A time of day within opening hours."""
    clock = f"{int(rng.integers(7, 23)):02d}:{int(rng.integers(60)):02d}"
    return f"{clock}:{int(rng.integers(60)):02d}" if chance(rng, 0.4) else clock


def shop_name(rng: np.random.Generator) -> str:
    """First word, trade and legal form."""
    name = f"{pick(rng, SHOP_FIRST)} {pick(rng, SHOP_KIND)} {pick(rng, SHOP_FORM)}".strip()
    return name.upper() if chance(rng, 0.6) else name


def item_name(rng: np.random.Generator, upper: bool) -> str:
    """What was bought."""
    name = f"{pick(rng, ITEM_FIRST)} {pick(rng, ITEM_NOUN)}"
    return name.upper() if upper else name
