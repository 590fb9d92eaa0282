"""The Apple document's studies of drafts: does the ratio of two speeds decide whether speculation pays?

apple_sd, self_speculation, moe_sd   the three studies
ratio                                an arm with the speed ratio of its draft and its target
claims, view                         what the three have in common
"""
