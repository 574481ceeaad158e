"""How values look wherever they are shown: HTML, charts, states, quantities in words.

    html           pieces of HTML that the page and the report share
    inline_html    HTML that carries its styles and files inside: what objects show in a notebook
    charts         charts as SVG text
    states         the tone and the icon of each state
    quantities     bytes, seconds and counts in words

No face is known here; how a run, a dataset or a grid looks is in the display modules of their packages.
"""
