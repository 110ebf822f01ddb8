"""What did we find? Runs, resume, metrics, tables, figures, report.

- One run: `config`, `values` and `fingerprint` describe it, `run` walks it with its `position`, `ledger`, `metrics`, `finite` and
  `records`, `drive` and `execute` lead it through `checkpoint`, `events`, `locks`, `loggers` and `stopping`; `environment`,
  `randomness`, `files` and `warned` are what these stand on.
- Many: `study` knows which are missing; `pool` and `worker` make them in processes, `lockstep`, `captured` and `pump` on a card.
- What they found: `results`, `accuracy`, `grouping`, `tables`, printed by `layout` and `formats`, made again by `commands`.
- The paper: `catalogue`, `design` and `plan` say what each of its tables is made of, `paper_numbers` what it prints, `search` and
  `settings_table` what was tried; `results_page` writes the ledger.
- The report page: `report`, `report_data`, `report_memory`, `charts`, `kept`, `contact_sheet`.
- Figures: `illustrate` draws from runs (`learning_curves`, `partial`) and `measured` measures anew on `picture_sets`, both by
  `figures/`.
"""
