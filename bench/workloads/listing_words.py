"""The words that made-up listings are made of (workloads/listings.py)."""

from __future__ import annotations

BRANDS = (
    *("Tarnhold", "Ovessa", "Quillmark", "Brandt & Lowe", "Fennick", "Solvane", "Hearthline", "MIRATO", "Älvhult"),
    *("Pinecrest Supply", "Corvida", "Nimbus Nine", "Ruskin", "Dalby Co.", "Wexport", "Lanternfish"),
)
SERIES = ("Drift", "Alto", "K-200", "Pro 7", "Everyday", "Norde", "XT", "Harbour", "Origin", "Series 4", "Loft", "V2")
PRODUCTS = (
    *("Kettle", "Headlamp", "Yoga Mat", "Cutting Board", "Laundry Basket", "Desk Fan", "Picnic Blanket", "Bike Pump"),
    *("Lunch Box", "Door Mat", "Tool Bag", "Watering Can", "Wall Clock", "Sleeping Bag", "Spice Rack", "Towel Set"),
    *("Garden Hose", "Storage Bin", "Rain Jacket", "Camp Chair", "Bath Scale", "Coffee Grinder", "Dog Bed", "Rug"),
    "Cooler",
)
ADJECTIVES = (
    *("Folding", "Heavy Duty", "Lightweight", "Stackable", "Insulated", "Waterproof", "Rechargeable", "Ergonomic"),
    *("Slim", "Extra Large", "Vintage", "Adjustable", "Travel", "Non-Slip", "Quiet", "Portable", "Reversible", "Mini"),
    *("Deluxe", "Outdoor", "Compact", "Padded", "Magnetic", "Wireless", "Classic", "Round", "Family", "Kids'", "Smart"),
    *("Premium", "Washable", "Hanging", "Wall-Mounted", "Double", "Striped", "Organic", "Universal", "Long", "Fleece"),
    "Collapsible",
)
PLACES = ("Camping", "Kitchens", "Small Flats", "Travel", "the Office", "Kids' Rooms", "the Garage", "Balconies")
COLOURS = ("Charcoal", "Sage Green", "Ivory", "Burnt Orange", "Sky Blue", "Matte Black", "Rose", "Sand", "Teal", "Plum")
MATERIALS = (
    *("stainless steel", "ripstop nylon", "solid beech", "BPA-free plastic", "organic cotton", "cork and rubber"),
    *("powder-coated aluminium", "tempered glass", "wool blend", "bamboo"),
)
PACKS = ("", "2", "3", "6", "12")
COUNTRIES = ("Portugal", "Vietnam", "Slovenia", "Taiwan", "Mexico", "Finland", "Morocco", "South Korea")
FEATURES = (
    *("carry handle", "two side pockets", "auto shut-off", "USB-C charging", "removable lid", "reflective trim"),
    *("silicone feet", "hanging loop", "measuring marks", "lockable wheels", "hidden zip", "spare gasket"),
)
CARE = ("hand wash only", "machine wash cold", "wipe clean", "dishwasher safe (top rack)", "spot clean")
AGES = ("adults", "teens", "children", "all ages")
POWER = ("battery", "mains", "USB", "manual")
SENTENCES = (
    "We started in a garage with one sewing machine, and every piece is still checked by hand before it ships.",
    "Whether it is your first or your fifth, you will notice the difference within a week.",
    "Please allow 1-3% deviation due to manual measurement; colors may vary from screen to screen.",
    "Packed in recycled cardboard, no plastic inside the box.",
    "Makes a thoughtful present for birthdays, housewarmings and the holidays.",
    "If anything is not as you hoped, write to us and a real person answers within one working day.",
    "Rinse before first use and let it dry completely; do not leave it in direct sun for long.",
    "Designed together with people who use their things every single day.",
    "NOTE: accessories shown in the pictures are not included unless listed below.",
    "The surface hides scratches well, and the edges are rounded so that nothing catches.",
    "Fits most standard shelves, boots and drawers - check the measurements above to be sure.",
    "It goes with the rest of the collection, sold separately in our store.",
    "Our older version had complaints about the seams, so this one has been reinforced twice.",
    "Thousands of customers have left a review; have a look before you decide!",
)
PARTS = (
    *("Handle", "Lining", "Closure", "Strap", "Rim", "Cable", "Plug", "Base", "Blade", "Mesh", "Filter", "Lid"),
    *("Edge", "Thread", "Cover", "Pocket", "Foot", "Spout", "Hinge", "Grip", "Panel", "Ring", "Core", "Frame"),
)
ASPECTS = {
    "colour": COLOURS,
    "material": MATERIALS,
    "origin": COUNTRIES,
    "finish": ("glossy", "matte", "brushed", "raw", "lacquered", "soft-touch"),
}
"""What may be asked about a part, and the answers."""
