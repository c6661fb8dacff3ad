"""The comparison of all layers in the last chapter."""
