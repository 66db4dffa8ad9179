"""Pictures of the site, one style, light and dark: `python -m exactk_lab.pictures docs/img` draws them anew."""
