"""A small byte-level tokenizer made on the spot, for peers that cannot run without one: FOLDER."""

import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"], show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
tokenizer.train_from_iterator(["word0 word1 word2 the sea is blue and the sky is wide"] * 20, trainer)
PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(sys.argv[1])
