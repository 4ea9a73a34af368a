"""The words that synthetic pages are made of. All shops, names, firms, streets and numbers are invented."""

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
HEADINGS = (
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


PROSE = (
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not",
    "this", "are", "or", "his", "from", "at", "which", "but", "have", "an", "they", "you", "were", "her", "she", "all",
    "would", "there", "been", "one", "so", "if", "will", "more", "no", "out", "up", "said", "what", "about", "when",
    "them", "some", "into", "two", "could", "time", "only", "new", "than", "then", "other", "its", "over", "also",
    "our", "first", "such", "most", "any", "may", "these", "after", "like", "should", "before", "must", "through",
    "where", "much", "each", "between", "under", "last", "well", "because", "very", "during", "without", "against",
    "program", "market", "report", "sample", "test", "results", "research", "product", "development", "company",
    "department", "approval", "request", "information", "material", "additional", "required", "review", "schedule",
    "process", "control", "quality", "standard", "production", "project", "budget", "account", "manager", "division",
    "office", "number", "date", "period", "total", "estimate", "analysis", "study", "data", "value", "method",
    "procedure", "percent", "level", "increase", "decrease", "average", "weight", "length", "filter", "blend", "paper",
    "machine", "laboratory", "system", "service", "customer", "order", "shipment", "supplier", "contract", "agreement",
    "payment", "invoice", "letter", "copy", "attached", "enclosed", "following", "above", "below", "please", "advise",
    "confirm", "complete", "return", "original", "signature", "authorized", "prepared", "submitted", "approved",
    "received", "effective", "immediately", "regarding", "according", "concerning", "currently", "previously",
    "approximately", "per", "available", "proposed", "recommended", "specified", "national", "regional",
    "international", "promotion", "advertising", "campaign", "consumer", "response", "survey", "interview",
    "questionnaire", "retail", "wholesale", "carton", "package", "label", "brand", "display", "store", "sales",
    "volume", "distribution", "competitive", "share", "objective", "strategy", "plan", "phase", "cost", "price",
    "rate", "unit", "item", "description", "quantity", "amount", "balance", "discount", "allowance", "subject",
    "reference", "committee", "meeting", "agenda", "comments", "action", "safety", "health", "environment",
    "equipment", "temperature", "moisture", "pressure", "chemical", "compound", "concentration", "solution", "animal",
    "linen", "cotton", "steel", "copper", "timber", "cement", "harbour", "station", "garden", "window", "morning",
    "evening", "summer", "winter", "north", "south",
)  # fmt: skip
LABELS = (
    "Name", "Date", "Address", "City", "State", "Zip Code", "Telephone", "Title", "Department", "Project No.",
    "Account No.", "Description", "Subject", "Company", "Country", "Market", "Brand", "Style", "Type", "Size",
    "Quantity", "Amount", "Prepared by", "Approved by", "Submitted by", "Requested by", "Reviewed by", "Date Received",
    "Date Required", "Starting Date", "Completion Date", "Reference", "Invoice No.", "Purchase Order No.", "Terms",
    "Ship to", "Bill to", "Supplier", "Contact Person", "Sample No.", "Batch Size", "Test Method", "Laboratory",
    "Purpose", "Comments", "Remarks", "Reason for Request", "Total Cost", "Budget Code", "Original Estimate",
    "Current Balance", "New Balance", "Region", "Division", "District", "Manager", "Sex", "Age", "Date of Birth",
    "Social Security No.", "Employer", "Position", "Position Title", "Salary", "Fax No.", "Extension", "To", "From",
    "cc", "Re", "No. of Pages", "Time", "Place of Manufacture", "Weight", "Length", "Circumference", "Moisture",
    "Temperature", "Product", "Code", "Serial No.", "Model", "Colour", "Material", "Location", "Event", "Attendance",
    "Publication", "Circulation", "Rate", "Issue Date", "Signature", "Authorized Signature", "Witness", "Distribution",
    "Copies to", "Schedule", "Media", "Cost Center", "Charge", "Registration No.", "Author(s)", "Journal",
    "Conference", "Investigator", "Compound", "Source", "Lot No.", "Solvent", "Dose", "Species", "Route", "Duration",
    "File No.", "Case No.", "Court", "Judge", "Plaintiff", "Defendant", "Attorney", "Client", "Matter", "Bank",
    "Branch", "Currency",
)  # fmt: skip
TITLES = (
    "REQUEST FOR APPROVAL", "SAMPLE ANALYSIS REPORT", "PROJECT AUTHORIZATION", "PRODUCT SPECIFICATION",
    "Expense Report", "APPLICATION FOR EMPLOYMENT", "CHANGE OF BUDGET", "Travel Information Sheet",
    "WEEKLY ACTIVITY REPORT", "MATERIAL SAFETY DATA", "PURCHASE REQUISITION", "New Account Form",
    "Facsimile Transmittal", "FAX COVER SHEET", "INTER-OFFICE MEMORANDUM", "Registration Form", "CONTRACT SUMMARY",
    "Delivery Note", "INSPECTION RECORD", "Order Form", "MARKET RESEARCH BRIEF", "RETURN AUTHORIZATION",
    "Supplier Questionnaire", "TIME SHEET", "CLAIM FORM", "Packing List", "LABORATORY REPORT",
    "Customer Complaint Record", "MEDIA AUTHORIZATION", "STUDY PROTOCOL", "Data Sheet",
)  # fmt: skip
FIRMS = (
    "Harlow & Finch", "Northgate Chemical", "Pemberton Mills", "Atlas Paper", "Crestline", "Tobin Brothers",
    "Meridian", "Oakfield Research", "Lakeshore Supply", "Vantage Graphics", "Summit Laboratories", "Granville",
    "Kestrel Foods", "Union Textile", "Beacon Advertising", "Marlowe Instruments", "Sterling Freight",
    "Aurora Packaging", "Halden Marine",
)  # fmt: skip
FIRM_FORMS = ("Inc.", "Company", "Corporation", "Co., Inc.", "Ltd.", "International", "& Associates", "Group", "")
FIRST_NAMES = (
    "James", "Mary", "Robert", "Linda", "William", "Susan", "Thomas", "Karen", "Peter", "Helen", "George", "Ruth",
    "Alan", "Ingrid", "Miguel", "Yuki", "Amina", "Pavel", "Chen", "Olga",
)  # fmt: skip
LAST_NAMES = (
    "Hartley", "Schultz", "Minton", "Graves", "Bexley", "Tran", "Carter", "Lindqvist", "Okafor", "Rowan", "Sayers",
    "Walker", "Merriman", "Tremaine", "Abbott", "Nakamura", "Garcia", "Dorsey", "Pruitt", "Lowell", "Soames", "Keane",
    "Weaver",
)  # fmt: skip
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
COLUMNS = (
    "No.", "Item", "Description", "Qty", "Unit", "Price", "Amount", "Total", "Code", "Date", "Region", "Sample",
    "Weight", "Mean", "S.D.", "Base", "Score", "Rate", "Cost", "%", "Lot", "Size", "Brand", "Market", "Budget",
    "Actual", "Variance", "Circulation", "Issue", "Present Sample", "Mean of Last 12", "Cost per Unit", "Discount",
    "Tax", "Balance",
)  # fmt: skip
OPTIONS = (
    "Yes", "No", "N/A", "Other", "Male", "Female", "New", "Revised", "Final", "Draft", "Urgent", "Routine", "Domestic",
    "Export", "Temporary", "Permanent", "Heat", "Air", "Moisture", "Approved", "Rejected", "For Review",
    "Please Reply", "Single", "Married", "Weekly", "Monthly",
)  # fmt: skip


def person(rng: np.random.Generator) -> str:
    """A name, with initials as often as not."""
    last, first = pick(rng, LAST_NAMES), pick(rng, FIRST_NAMES)
    forms = (f"{first[0]}. {pick(rng, FIRST_NAMES)[0]}. {last}", f"{first} {last}", f"Dr. {first[0]}. {last}", last)
    return pick(rng, forms)


def firm(rng: np.random.Generator) -> str:
    """A firm's name."""
    return f"{pick(rng, FIRMS)} {pick(rng, FIRM_FORMS)}".strip()


def amount(rng: np.random.Generator) -> str:
    """A sum of money or a measured value."""
    value = float(rng.lognormal(4.5, 2.4))
    forms = (
        f"{value:,.2f}",
        f"${value:,.0f}",
        f"{value:,.0f}",
        f"$ {value:,.2f}",
        f"{value % 10:.3f}",
        f"({value:,.2f})",
    )
    return pick(rng, forms)


def long_date(rng: np.random.Generator) -> str:
    """A date as letters and typists write it."""
    day, year = int(rng.integers(1, 29)), int(rng.integers(1960, 2026))
    forms = (
        f"{pick(rng, MONTHS)} {day}, {year}",
        f"{day} {pick(rng, MONTHS)} {year}",
        f"{int(rng.integers(1, 13))}/{day}/{year % 100:02d}",
        f"{pick(rng, MONTHS)[:3]}. {day}, {year}",
        date(rng),
    )
    return pick(rng, forms)


def code(rng: np.random.Generator) -> str:
    """A file number, an order number, a mark."""
    letters = "".join(chr(65 + int(letter)) for letter in rng.integers(0, 26, 2))
    forms = (
        number(rng, int(rng.integers(2, 9))),
        f"{letters}-{number(rng, 3)}",
        f"{number(rng, 2)}-{number(rng, 4)}{letters[0]}",
        f"{letters}{number(rng, 4)}",
        f"#{number(rng, 3)}",
    )
    return pick(rng, forms)


def phone(rng: np.random.Generator) -> str:
    """A telephone number."""
    area, first, last = number(rng, 3), number(rng, 3), number(rng, 4)
    return pick(rng, (f"({area}) {first}-{last}", f"{area}-{first}-{last}", f"{area} {first} {last}"))


def address(rng: np.random.Generator) -> list[str]:
    """Street and town."""
    street = f"{int(rng.integers(1, 2000))} {pick(rng, STREETS)}"
    return [street, f"{pick(rng, TOWNS)}, {number(rng, 5)}"]


def value(rng: np.random.Generator) -> str:
    """A value for a field of a form."""
    makers = (person, firm, amount, long_date, code, phone)
    kind = int(rng.integers(len(makers) + 2))
    text = makers[kind](rng) if kind < len(makers) else phrase(rng, int(rng.integers(1, 6)))
    return text.upper() if chance(rng, 0.2) else text


def phrase(rng: np.random.Generator, count: int) -> str:
    """A few words that do not form a sentence."""
    return " ".join(prose(rng, count)).rstrip(".,")


def prose(rng: np.random.Generator, count: int) -> list[str]:
    """Words with capitals, punctuation, numbers and brackets where a text would have them."""
    words = [PROSE[index] for index in rng.integers(0, len(PROSE), count)]
    kinds = rng.random(count)
    start = True
    for index, kind in enumerate(kinds):
        word = words[index]
        if kind < 0.03:
            word = amount(rng)
        elif kind < 0.05:
            word = f"({word})"
        elif kind < 0.07:
            word = f"{word}-{pick(rng, PROSE)}"
        elif kind < 0.1:
            word = word.capitalize()
        words[index] = word.capitalize() if start else word
        start = bool(kind > 0.93)
        words[index] += "." if start else "," if kind > 0.88 else ""
    words[-1] = words[-1].rstrip(".,") + "."
    return words
