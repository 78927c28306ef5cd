"""A posted batch, from request to receipt."""
