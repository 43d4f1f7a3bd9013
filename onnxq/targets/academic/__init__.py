"""Targets of papers: any bits, to compare methods with what is published."""
