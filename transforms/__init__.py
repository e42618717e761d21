"""PTransforms, and the pure array functions under them. Knows a plan, never a budget."""
