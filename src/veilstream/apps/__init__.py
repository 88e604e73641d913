"""What people run: command line, report, fleets, the paper, capacity plans, benchmarks. Nothing else imports these."""
