"""Does it fit? What a run needs of memory, disk and time, before it starts and when memory runs out.

    cards       what is known of graphics cards; the presets by memory
    estimate    memory by phase, reckoned from the model's sizes and the settings
    timing      seconds a step and in total
    levels      the cheapest settings that fit a card; the next cheaper ones
    measuring   real steps, a preview and a save in a process of their own (trial), whose figures replace the estimate
    stepping    a run whose memory ran out goes on with the next cheaper settings, once
    look        all of it together, for the page, the notebook and the shell

Only `trial`, the process that measures, loads torch. Not covered: how the levels are carried out (trainer.ladder).
"""
