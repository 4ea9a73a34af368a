"""The words that forms, letters and invoices are made of. All names, firms and numbers are invented."""

from __future__ import annotations

import numpy as np

from ocr.tools.synth.phrases import STREETS, TOWNS, chance, date, number, pick

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
    """What somebody fills into a field."""
    makers = (person, firm, amount, long_date, code, phone)
    kind = int(rng.integers(len(makers) + 2))
    text = makers[kind](rng) if kind < len(makers) else phrase(rng, int(rng.integers(1, 6)))
    return text.upper() if chance(rng, 0.2) else text


def phrase(rng: np.random.Generator, count: int) -> str:
    """A few words that are no sentence."""
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
