"""What `dpngram compare` and `dpngram audit` compute."""
