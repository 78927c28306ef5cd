"""How raters disagree and how well a model predicts it: tables, concentrations, what some votes tell of the next."""
