"""The paper's construction: Lemmas 5, 6 and 7, Appendix C."""
