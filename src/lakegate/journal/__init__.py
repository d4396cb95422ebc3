"""The journal: what runs intended and how they ended, who works on them, and which source files they claimed."""
