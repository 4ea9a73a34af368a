"""Results for people: tables on the screen, JSON files, and one HTML page."""
