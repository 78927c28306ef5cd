"""Second versions of the engine's parts, written plainly: tests compare the product with them."""
