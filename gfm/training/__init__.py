"""What training computes: losses, batches and steps as plain functions, and the trainer that runs them."""
