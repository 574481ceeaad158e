"""LoRA files as things of their own: the shelf of all that lie in a workspace, and what can be made of them.

`names` says what a LoRA is called, `shelf` what is known of it, `removal` takes one away and brings it back; these need
no torch. `settings` declares the operations, `tasks` starts them as jobs, and the modules named after them do the work.
Not covered: training (trainer), drawing with a LoRA (sampler), putting one on the Hub (publishing).
"""
