"""Where other tools meet xpolicy; each module is loaded by the tool that it is for."""
