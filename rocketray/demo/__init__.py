"""The main job on real data: what ``rocketray demo`` runs, and how its result is checked."""
