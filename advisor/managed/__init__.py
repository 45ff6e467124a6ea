"""Config files that advisor changes: what the user wrote stays, every change can be taken back."""
