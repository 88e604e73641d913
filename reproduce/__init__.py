"""The paper (Erdemir, Dragotti, Gündüz: Privacy-Aware Time-Series Data Sharing with Deep Reinforcement Learning), item
by item: what it states, what we get, and whether they agree."""
