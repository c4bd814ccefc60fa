"""Stage: adapts a pretrained checkpoint to questions. Run as `python -m finetune --config ... key=value`."""
