"""The page's theme: Gradio's variables set to the colours, sizes and distances of docs/design.md, light and dark.

The page's own parts use the same values as variables of assets/tokens.css; tests/ui/test_theme.py holds them together.
"""

from __future__ import annotations

from typing import Any

import gradio as gr
from gradio.themes.utils import sizes
from gradio.themes.utils.colors import Color

ACCENT = Color(
    name="accent",
    c50="#f2f5ff",
    c100="#e8edff",
    c200="#ccd7ff",
    c300="#adbfff",
    c400="#8aa4ff",
    c500="#5c7cee",
    c600="#3457d5",
    c700="#2846b3",
    c800="#223a8f",
    c900="#1d2f70",
    c950="#1d2747",
)
NEUTRAL = Color(
    name="neutral",
    c50="#f6f7f9",
    c100="#eef0f4",
    c200="#e3e6eb",
    c300="#c9cfd9",
    c400="#9aa5b5",
    c500="#667085",
    c600="#566070",
    c700="#3a4350",
    c800="#272d36",
    c900="#171b21",
    c950="#0f1216",
)
TEXT = sizes.Size(name="text", xxs="11px", xs="12px", sm="13px", md="14px", lg="15px", xl="20px", xxl="24px")
SPACING = sizes.Size(name="space", xxs="2px", xs="2px", sm="4px", md="8px", lg="8px", xl="12px", xxl="16px")
RADIUS = sizes.Size(name="radius", xxs="2px", xs="4px", sm="4px", md="8px", lg="8px", xl="8px", xxl="16px")

# Gradio's variable -> its value by light and by dark.
COLOURS: dict[str, tuple[str, str]] = {
    "body_background_fill": ("#f6f7f9", "#0f1216"),
    "body_text_color": ("#14171c", "#e8ebf0"),
    "body_text_color_subdued": ("#566070", "#9aa5b5"),
    "background_fill_primary": ("#ffffff", "#171b21"),
    "background_fill_secondary": ("#f6f7f9", "#1d222a"),
    "border_color_primary": ("#e3e6eb", "#272d36"),
    "border_color_accent": ("#3457d5", "#8aa4ff"),
    "block_background_fill": ("#ffffff", "#171b21"),
    "block_border_color": ("#e3e6eb", "#272d36"),
    "block_info_text_color": ("#566070", "#9aa5b5"),
    "block_label_text_color": ("#566070", "#9aa5b5"),
    "block_title_text_color": ("#3a4350", "#c9cfd9"),
    "input_background_fill": ("#ffffff", "#0f1216"),
    "input_border_color": ("#c9cfd9", "#3a4350"),
    "input_border_color_focus": ("#3457d5", "#8aa4ff"),
    "input_placeholder_color": ("#667085", "#8e99aa"),
    "link_text_color": ("#3457d5", "#8aa4ff"),
    "link_text_color_hover": ("#2846b3", "#adbfff"),
    "link_text_color_active": ("#2846b3", "#adbfff"),
    "link_text_color_visited": ("#3457d5", "#8aa4ff"),
    "slider_color": ("#3457d5", "#8aa4ff"),
    "loader_color": ("#3457d5", "#8aa4ff"),
    "checkbox_background_color_selected": ("#3457d5", "#5c7cee"),
    "checkbox_border_color": ("#9aa5b5", "#566070"),
    "checkbox_border_color_selected": ("#3457d5", "#5c7cee"),
    "checkbox_border_color_focus": ("#3457d5", "#8aa4ff"),
    "button_primary_background_fill": ("#3457d5", "#8aa4ff"),
    "button_primary_background_fill_hover": ("#2846b3", "#adbfff"),
    "button_primary_text_color": ("#ffffff", "#0f1216"),
    "button_secondary_background_fill": ("#ffffff", "#1d222a"),
    "button_secondary_background_fill_hover": ("#eef0f4", "#272d36"),
    "button_secondary_border_color": ("#c9cfd9", "#3a4350"),
    "button_secondary_text_color": ("#14171c", "#e8ebf0"),
    "button_cancel_background_fill": ("#ffffff", "#1d222a"),
    "button_cancel_background_fill_hover": ("#fcebea", "#3a1d1c"),
    "button_cancel_border_color": ("#b3261e", "#ff8a80"),
    "button_cancel_text_color": ("#b3261e", "#ff8a80"),
    "error_background_fill": ("#fcebea", "#3a1d1c"),
    "error_border_color": ("#b3261e", "#ff8a80"),
    "error_text_color": ("#b3261e", "#ff8a80"),
    "error_icon_color": ("#b3261e", "#ff8a80"),
}
SHAPES = {
    "button_border_width": "1px",
    "button_border_width_dark": "1px",
    "button_large_padding": "6px 14px",
    "button_large_text_size": "*text_md",
    "button_small_padding": "4px 12px",
    "block_label_text_size": "*text_xs",
    "block_title_text_size": "*text_sm",
    "block_title_text_weight": "400",
    "block_info_text_size": "*text_sm",
    "block_padding": "8px 12px",
    "block_shadow": "none",
    "checkbox_label_text_size": "*text_md",
    "color_accent": "light-dark(#3457d5, #8aa4ff)",
    "input_border_width": "1px",
    "input_border_width_dark": "1px",
    "input_padding": "7px 10px",
    "input_shadow": "none",
    "input_shadow_focus": "none",
    "input_text_size": "*text_md",
    "layout_gap": "12px",
    "shadow_drop": "none",
    "shadow_drop_lg": "none",
}


def theme() -> gr.themes.Base:
    """The theme, for `launch`."""
    base = gr.themes.Base(
        primary_hue=ACCENT,
        secondary_hue=ACCENT,
        neutral_hue=NEUTRAL,
        text_size=TEXT,
        spacing_size=SPACING,
        radius_size=RADIUS,
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "Consolas", "monospace"],
    )
    values: dict[str, Any] = dict(SHAPES)
    for name, (light, dark) in COLOURS.items():
        values |= {name: light, f"{name}_dark": dark}
    return base.set(**values)
