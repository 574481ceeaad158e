"""Publishing on the page: below the chosen LoRA of the shelf."""
