"""The recipes are checked where their files belong, in a copy of the tree (``test_project_recipes.py``), and not here."""

collect_ignore = ["recipes"]
