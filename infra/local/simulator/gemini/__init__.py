"""The Gemini half: files and batches, as `generativelanguage.googleapis.com` answers them."""
