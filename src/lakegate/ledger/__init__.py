"""The ledger: commits of the target say what they publish and unpublish; what is published is a fold over them."""
