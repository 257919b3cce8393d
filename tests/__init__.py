"""The tests of zoefs, a folder a tier; `fakes` holds what they run against."""
