"""What an adversary really learns from a policy's releases: exactly, and by learning."""
