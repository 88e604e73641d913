"""What machines a deployment needs: rates measured here, arithmetic written out."""
