"""What the reference side of the fidelity checks shares: Transformers and PEFT run in a plain loop."""
