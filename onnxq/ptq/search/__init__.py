"""The search over post-training methods: each is tested on samples that it was not fitted to, and kept if it helps."""
