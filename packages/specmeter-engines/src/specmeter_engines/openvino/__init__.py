"""OpenVINO GenAI: pipelines with a draft model. What its prompt lookup proposes it does not tell, so that is left out.

A session is a process of its own (`child`). Targets are GGUF files or folders of OpenVINO's own form, drafts folders;
`bench:NAME` is converted first.
"""
