"""What heads cost on machines, and heads on several of them. Each file is imported by name: some load much."""
