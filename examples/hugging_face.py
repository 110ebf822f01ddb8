"""A Hugging Face model that learns one pair of topics after the other, and remembers the earlier ones.

pip install transformers
python examples/hugging_face.py

Here the model is a small BERT without training, and the texts are words drawn by chance; yours comes from `from_pretrained`,
and its batches from a tokenizer with padding="max_length". With adapters (peft) only those learn, and selection looks at them alone.
"""

import corestream
import torch
from transformers import BertConfig, BertForSequenceClassification

TOPICS, WORDS, LENGTH = 6, 10, 12  # each topic has 10 words of its own
torch.manual_seed(0)
config = BertConfig(
    vocab_size=TOPICS * WORDS + 1, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
    max_position_embeddings=LENGTH, num_labels=TOPICS, pad_token_id=0, initializer_range=0.1,
)  # fmt: skip
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
memory = corestream.ReplayMemory(capacity=60)
learner = corestream.OCS(model, optimizer, memory, k=8, replay=8, warm_start=20, fill="herding")


def texts(topics, count):
    """As a tokenizer gives them: numbers of words, and a mask over the padding."""
    labels = topics[torch.randint(len(topics), (count,))]
    mask = (torch.arange(LENGTH) < torch.randint(4, LENGTH + 1, (count, 1))).long()
    words = 1 + labels[:, None] * WORDS + torch.randint(WORDS, (count, LENGTH))
    return {"input_ids": words * mask, "attention_mask": mask}, labels


for topics in torch.arange(TOPICS).split(2):
    for _ in range(100):
        inputs, labels = texts(topics, 40)
        learner.observe(inputs, labels)  # the loss is the cross-entropy of the model's logits
    learner.end_task()
    seen = torch.arange(int(topics.max()) + 1)
    inputs, labels = texts(seen, 500)
    model.eval()
    with torch.no_grad():
        accuracy = (model(**inputs).logits.argmax(1) == labels).float().mean()
    model.train()
    print(f"after {len(seen)} topics {accuracy:.2f} of all texts are right, {len(memory)} remembered")
