"""What people run: command line, report, fleets. Nothing else imports these."""
