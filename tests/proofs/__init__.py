"""Proofs: properties of the whole flow, over many histories. ``make prove`` runs their long forms."""
