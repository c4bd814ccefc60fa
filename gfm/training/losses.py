"""Losses of pretraining and of fine-tuning, each a scalar; the supervised ones are zero without positives.

Shapes: `B` questions, `V` entities; logits, gates and masks are `(B, V)`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def bce_loss(logits: Tensor, positives: Tensor, negatives: Tensor, temperature: float = 0.0) -> Tensor:
    r"""Binary cross-entropy with each side normalised by its own count (Eq. 5).

    .. math::
        L = -\tfrac{1}{|V^+|}\sum_{e \in V^+} \log P(e) - \sum_{e \in V^-} w_e \log(1 - P(e))

    `w` is uniform at `temperature` 0; above it `softmax(logit / T)` over the negatives, which dwells on the hard ones
    (self-adversarial weights, no gradient through them). Averaged over the questions that have a positive.
    """
    positive = _mean_where(-F.logsigmoid(logits), positives)
    if temperature > 0:
        masked = (logits.detach() / temperature).masked_fill(~negatives, -torch.inf)
        weight = masked.softmax(dim=1).masked_fill(~negatives, 0.0).nan_to_num(0.0)
        negative = -(weight * F.logsigmoid(-logits)).sum(dim=1)
    else:
        negative = _mean_where(-F.logsigmoid(-logits), negatives)
    return _mean_over_labelled(positive + negative, positives)


def rank_loss(logits: Tensor, positives: Tensor, candidates: Tensor | None = None) -> Tensor:
    r"""Listwise cross-entropy over probabilities (Eq. 6).

    .. math:: L = -\tfrac{1}{|V^+|} \sum_{e \in V^+} \log \frac{P(e)}{\sum_{e'} P(e')}, \qquad P = \sigma(logit)

    Args:
        logits: of all entities.
        positives: the answers.
        candidates: which `e'` the denominator sums over; all by default. Other true answers of a completion query are
            left out, since they are neither positives nor negatives of it.
    """
    log_prob = F.logsigmoid(logits)
    total = log_prob if candidates is None else log_prob.masked_fill(~(candidates | positives), -torch.inf)
    loss = _mean_where(torch.logsumexp(total, dim=1, keepdim=True) - log_prob, positives)
    return _mean_over_labelled(loss, positives)


def prototype_loss(similarity: Tensor, domain: Tensor, temperature: float) -> Tensor:
    r"""Alignment with domains (Eq. 7): InfoNCE of positives' states against all prototypes, in nats.

    .. math:: L_{proto} = -\log \operatorname{softmax}_{d'}(\cos(Z_e, c_{d'}) / \tau)[d]

    Averaged over the positives; with a single domain it is zero, and at most `log D + 2/τ`.

    Args:
        similarity: cosines of each positive's state with every prototype `(N, D)`.
        domain: the number of each positive's domain `(N,)`.
        temperature: τ.
    """
    return F.cross_entropy(similarity / temperature, domain) if len(domain) else similarity.sum() * 0.0


def information_gain_loss(
    logits: Tensor, to_prototype: Tensor, to_random: Tensor, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Information gain contrast (Eq. 8), in nats, averaged over the questions.

    .. math:: L_{IGC} = KL(\hat P_q \| \hat P_{proto}) - KL(\hat P_q \| \hat P_{rand})

    with :math:`\hat P_q = P_q / \sum P_q`, :math:`\hat P_{proto} = softmax_e(\cos(Z_e, c_d)/\tau)` and
    :math:`\hat P_{rand}` the same for a random direction: what the model thinks relevant should look more like its
    domain than like anything. Cosines lie in [-1, 1], so no :math:`-\log \hat P_{rand}(e)` exceeds `log V + 2/τ`; the
    second divergence is therefore at most that, and the loss, which is lowered by raising it, cannot fall below
    `-(log V + 2/τ)`.

    Args:
        logits: of all entities `(B, V)`.
        to_prototype: cosines with the question's prototype `(B, V)`.
        to_random: cosines with a random direction `(B, V)`.
        temperature: τ.

    Returns:
        The loss, and its two divergences without gradient.
    """
    log_prob = F.logsigmoid(logits)
    log_prob = log_prob - log_prob.logsumexp(dim=1, keepdim=True)
    prob = log_prob.exp()
    to_proto, to_rand = (
        (prob * (log_prob - (cosine / temperature).log_softmax(dim=1))).sum(dim=1).mean()
        for cosine in (to_prototype, to_random)
    )
    return to_proto - to_rand, to_proto.detach(), to_rand.detach()


def contrastive_loss(pooled: Tensor, question: Tensor, temperature: float = 0.1) -> Tensor:
    r"""Sufficiency (Eq. 15): InfoNCE between pooled subgraphs and their questions, both `(B, text_dim)`.

    .. math:: L_{NCE} = -\log \frac{\exp(\cos(W_g G_q, q)/\tau_n)}{\sum_{q'} \exp(\cos(W_g G_{q'}, q)/\tau_n)}

    The negatives are the other subgraphs of the batch, so one question alone gives zero. In nats, at most
    `log B + 2/τ_n`.
    """
    similarity = F.normalize(question, dim=-1) @ F.normalize(pooled, dim=-1).T
    return F.cross_entropy(similarity / temperature, torch.arange(len(question), device=question.device))


def size_loss(gates: Tensor, expected_size: Tensor) -> Tensor:
    """Minimality, size (Eq. 16): `Σ_e S_e`, divided by the expected size `(B,)`, averaged over questions."""
    return (gates.sum(dim=1) / expected_size.clamp_min(1)).mean()


def connectivity_loss(gates: Tensor, pairs: Tensor, expected_size: Tensor) -> Tensor:
    r"""Minimality, connectivity (Eq. 17): :math:`S^\top L_{sym} S`, divided by the expected size `(B,)`.

    The quadratic form of the symmetric normalised Laplacian is a sum over undirected pairs,
    :math:`\sum_{\{u,v\}} (S_u/\sqrt{d_u} - S_v/\sqrt{d_v})^2`: no matrix is built. Zero for gates proportional to the
    square root of the degree within each component, and for entities without a neighbour.

    Args:
        gates: `(B, V)`.
        pairs: `(2, P)` from `undirected_pairs`.
        expected_size: what β₂ is measured against.
    """
    if pairs.size(1) == 0:
        return gates.sum() * 0.0
    degree = torch.bincount(pairs.flatten(), minlength=gates.size(1)).clamp_min(1)
    scaled = gates * degree.to(gates.dtype).rsqrt()
    energy = (scaled[:, pairs[0]] - scaled[:, pairs[1]]).square().sum(dim=1)
    return (energy / expected_size.clamp_min(1)).mean()


def undirected_pairs(edge_index: Tensor) -> Tensor:
    """The distinct unordered pairs `(2, P)` that some edge joins; self-loops, duplicates and direction dropped."""
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    return torch.unique(torch.stack([low, high])[:, low != high], dim=1)


def _mean_where(values: Tensor, mask: Tensor) -> Tensor:
    # masked_fill, not a product: an infinite value outside the mask must not turn into NaN.
    return values.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1).clamp_min(1)


def _mean_over_labelled(loss: Tensor, positives: Tensor) -> Tensor:
    labelled = positives.any(dim=1)
    return loss.masked_fill(~labelled, 0.0).sum() / labelled.sum().clamp_min(1)
