"""The mount daemon: HOME with manners. It never forks an agent and never touches its own mount."""
