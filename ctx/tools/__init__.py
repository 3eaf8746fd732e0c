"""The one way in: every door calls a tool by the Toolbox."""
