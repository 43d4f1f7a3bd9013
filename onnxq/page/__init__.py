"""report.html: one offline file that shows what a run did, why, and what came of it."""
