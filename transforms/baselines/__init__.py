"""Systems to compare with. NOT part of an extraction; `count_exactly` is NOT private."""
