"""Graphs of networks in MXNet's symbol API, of any size. Needs mxnet 1.9.1 on Python 3.8 or newer. tests/golden/networks has
small ones, with MXNet's answers. tools/bench measures large ones, whose sizes are in made_networks.py.

  mxnet_networks.py GRAPH SIZES FILE-symbol.json     GRAPH: a function of this file; SIZES: its arguments, as JSON
"""
import json
import sys

import mxnet as mx

S = mx.sym
NEVER = -1e18  # the score of a place that does not count


# Faster R-CNN

def convolution(x, filters, kernel, name, stride=1):
    """With BatchNorm and ReLU."""
    window = dict(kernel=(kernel, kernel), stride=(stride, stride), pad=(kernel // 2, kernel // 2))
    x = S.Convolution(x, num_filter=filters, no_bias=True, name=name, **window)
    return S.Activation(S.BatchNorm(x, fix_gamma=False, name=name + "_bn"), act_type="relu", name=name + "_relu")


def backbone(x, widths, blocks):
    """Each stage halves the picture, then has residual blocks of two convolutions."""
    names = ("c%d" % number for number in range(1, 1000))
    for width, count in zip(widths, blocks):
        x = convolution(x, width, 3, next(names), stride=2)
        for _ in range(count):
            y = convolution(x, width, 3, next(names))
            y = S.Convolution(y, num_filter=width, kernel=(3, 3), pad=(1, 1), name=next(names))
            x = S.Activation(x + y, act_type="relu")
    return x


def region_proposals(features, width, anchors):
    """The probabilities (1, 2 * anchors, height, width) and the offsets (1, 4 * anchors, height, width) of all anchors."""
    x = S.Convolution(features, num_filter=width, kernel=(3, 3), pad=(1, 1), name="rpn_conv")
    x = S.Activation(x, act_type="relu")
    scores = S.Convolution(x, num_filter=2 * anchors, kernel=(1, 1), name="rpn_cls_pred_conv")
    offsets = S.Convolution(x, num_filter=4 * anchors, kernel=(1, 1), name="rpn_bbox_pred_conv")
    probabilities = S.softmax(S.reshape(scores, shape=(0, 2, -1, 0)), axis=1)
    return S.reshape(probabilities, shape=(0, 2 * anchors, -1, 0)), offsets


def best_boxes(boxes, scores, offsets, classes, candidates, detections):
    """Decodes the box of each class, and suppresses boxes that overlap a better one of their class: class, score and corners."""
    boxes = S.reshape(S.slice_axis(boxes, axis=-1, begin=1, end=None), shape=(1, -1, 4))
    scores = S.slice_axis(scores, axis=-1, begin=1, end=None)
    rows = []
    for c in range(classes):
        offset = S.reshape(S.slice_axis(offsets, axis=-1, begin=4 * c, end=4 * c + 4), shape=(1, -1, 4))
        box = S.contrib.box_decode(offset, boxes, std0=.1, std1=.1, std2=.2, std3=.2, clip=4.0, format="corner")
        score = S.reshape(S.slice_axis(scores, axis=-1, begin=c, end=c + 1), shape=(1, -1, 1))
        rows.append(S.concat(S.ones_like(score) * c, score, box, dim=-1))
    x = S.contrib.box_nms(S.concat(*rows, dim=1), overlap_thresh=0.3, topk=candidates, valid_thresh=0.05, id_index=0,
                          score_index=1, coord_start=2, force_suppress=False)
    x = S.slice_axis(x, axis=1, begin=0, end=detections)
    return S.Group([S.slice_axis(x, axis=-1, begin=begin, end=end) for begin, end in ((0, 1), (1, 2), (2, 6))])


def faster_rcnn(widths, blocks, rpn_width, scales, ratios, before_nms, boxes, least_size, pooled, hidden, classes,
                candidates=None, detections=None, proposal="Proposal"):
    """Inputs: data (1, 3, height, width), im_info (1, 3).

    With `candidates` and `detections` as in GluonCV: ROIAlign, and the best boxes after non-maximum suppression. Otherwise as in
    the classic symbols: ROIPooling, and the classes and offsets of all boxes."""
    is_classic, stride = candidates is None, 2 ** len(widths)
    features = backbone(S.var("data"), widths, blocks)
    probabilities, offsets = region_proposals(features, rpn_width, len(scales) * len(ratios))
    regions = getattr(S.contrib, proposal)(probabilities, offsets, S.var("im_info"), name="rois", feature_stride=stride,
                                           scales=tuple(scales), ratios=tuple(ratios), rpn_pre_nms_top_n=before_nms,
                                           rpn_post_nms_top_n=boxes, threshold=0.7, rpn_min_size=least_size)
    window = dict(pooled_size=(pooled, pooled), spatial_scale=1 / stride)
    if is_classic:
        x = S.ROIPooling(features, regions, **window)
    else:
        x = S.contrib.ROIAlign(features, regions, sample_ratio=2, **window)
    x = S.Activation(S.FullyConnected(S.Flatten(x), num_hidden=hidden, name="fc6"), act_type="relu")
    x = S.Activation(S.FullyConnected(x, num_hidden=hidden, name="fc7"), act_type="relu")
    scores = S.softmax(S.FullyConnected(x, num_hidden=classes + 1, name="cls_pred_conv"), axis=-1)
    offsets = S.FullyConnected(x, num_hidden=4 * (classes + is_classic), name="bbox_pred_conv")
    if is_classic:
        scores, offsets = (S.reshape(y, shape=(1, -1, n * (classes + 1))) for y, n in ((scores, 1), (offsets, 4)))
        return S.Group([regions, scores, offsets])
    return best_boxes(regions, scores, offsets, classes, candidates, detections)


# GNMT: a bidirectional encoder, a decoder with attention

def lstm(x, name, batch, units, **options):
    """All outputs, the last states and the last cells."""
    shape = (2 if options.get("bidirectional") else options["num_layers"], batch, units)
    weights = S.var(name.replace("enc", "enc_l") + "_parameters")
    return S.RNN(x, weights, S.zeros(shape), S.zeros(shape), state_size=units, mode="lstm", state_outputs=True, name=name,
                 **options)


def lstm_cell(x, state, name, width, units):
    """Written out, because a loop's body needs the shapes of its weights."""
    hidden, cell = state

    def dense(data, part, columns):
        weight = S.var(name + part + "_weight", shape=(4 * units, columns))
        return S.FullyConnected(data, weight, S.var(name + part + "_bias", shape=(4 * units,)), num_hidden=4 * units)
    gates = dense(x, "i2h", width) + dense(hidden, "h2h", units)
    in_gate, forget_gate, update, out_gate = list(S.SliceChannel(gates, num_outputs=4))
    cell = S.sigmoid(forget_gate) * cell + S.sigmoid(in_gate) * S.tanh(update)
    hidden = S.sigmoid(out_gate) * S.tanh(cell)
    return hidden, (hidden, cell)


def layer_state(forward, both, layer):
    """The last state of a layer of the encoder; -1: that of both directions of the first, side by side."""
    if layer < 0:
        return S.reshape(S.transpose(both, axes=(1, 0, 2)), shape=(0, -1))
    return S.squeeze(S.slice_axis(forward, axis=0, begin=layer, end=layer + 1), axis=0)


def gnmt(loop, batch, source, target, units, embedding, vocabulary, encoder_layers, decoder_layers, one_query=True):
    """Inputs: src (batch, source), tgt (batch, target), src_len (batch). Outputs: probabilities; the decoder's last states.

      loop            "unrolled", or "foreach" for one node _foreach over the target
      encoder_layers  those behind the bidirectional one
      one_query       False: each word has a variable query_weight of its own. MXNet runs that only without oneDNN's subgraphs"""
    src, tgt, lengths = S.var("src"), S.var("tgt"), S.var("src_len")
    words = S.Embedding(src, input_dim=vocabulary, output_dim=embedding, name="src_embed")
    first = lstm(S.transpose(words, axes=(1, 0, 2)), "enc0", batch, units // 2, num_layers=1, bidirectional=True)
    masked = S.SequenceMask(first[0], lengths, use_sequence_length=True)
    rest = lstm(masked, "enc1", batch, units, num_layers=encoder_layers)
    memory = S.SequenceMask(rest[0] + masked, lengths, use_sequence_length=True)
    memory = S.transpose(memory, axes=(1, 0, 2))  # batch, source, units
    keys = S.FullyConnected(memory, num_hidden=units, flatten=False, no_bias=True, name="key_proj")
    words = S.transpose(S.Embedding(tgt, input_dim=vocabulary, output_dim=embedding, name="tgt_embed"), axes=(1, 0, 2))
    mask = S.SequenceMask(S.ones((source, batch)), lengths, use_sequence_length=True)
    mask = S.expand_dims(S.transpose(mask), axis=1)  # batch, 1, source
    states = []
    for layer in range(encoder_layers - decoder_layers, encoder_layers):
        states += [layer_state(rest[1], first[1], layer), layer_state(rest[2], first[2], layer)]
    names = ["dec_" if layer == 0 else "dec%d_" % layer for layer in range(decoder_layers)]
    query_weight = S.var("query_weight", shape=(units, units))
    cells = [mx.rnn.LSTMCell(units, prefix=name) for name in names] if loop == "unrolled" else []

    def step(word, *state):
        """One word: the outputs, and the next state."""
        *state, attention = state
        x, next_state = S.concat(word, attention, dim=-1), []
        for layer, name in enumerate(names):
            before = state[2 * layer:2 * layer + 2]
            if cells:
                x, after = cells[layer](x, before)
            else:
                x, after = lstm_cell(x, before, name, units + embedding if layer == 0 else units, units)
            next_state += after
        weight = query_weight if one_query else S.var("query_weight", shape=(units, units))
        query = S.FullyConnected(x, weight, num_hidden=units, no_bias=True)
        scores = S.batch_dot(S.expand_dims(query, axis=1), keys, transpose_b=True) * (units ** -0.5)
        scores = S.where(mask, scores, S.ones_like(scores) * NEVER)
        weights = S.softmax(scores, axis=-1) * mask
        attention = S.reshape(S.batch_dot(weights, memory), shape=(-1, units))
        return S.concat(x, attention, dim=-1), [*next_state, attention]

    states.append(S.zeros((batch, units)))
    if loop == "foreach":
        outputs, states = S.contrib.foreach(lambda word, state: step(word, *state), words, states)
    else:
        rows = []
        for word in S.SliceChannel(words, num_outputs=target, axis=0, squeeze_axis=True):
            row, states = step(word, *states)
            rows.append(row)
        outputs = S.stack(*rows, axis=0)
    scores = S.FullyConnected(outputs, num_hidden=vocabulary, flatten=False, name="out_proj")
    return S.Group([S.softmax(scores, axis=-1), *states[:-1]])


# Transformer

def transformer_encoder(layers, units, heads, hidden, length, positions, classes):
    """Inputs: data (batch, length, units), valid_length (batch). Outputs: all places, and classes of their mean."""
    x, lengths = S.var("data"), S.var("valid_length")
    one = S.reshape(S.slice_axis(x, axis=0, begin=0, end=1), shape=(-1, units))
    position = S.slice_like(S.var("position_weight", shape=(positions, units)), one, axes=(0,))
    y = S.broadcast_add(x * float(units) ** 0.5, S.expand_dims(position, axis=0))
    y = S.LayerNorm(y, S.var("ln0_gamma"), S.var("ln0_beta"), name="ln0")
    places = S.contrib.arange_like(x, axis=1)
    valid = S.broadcast_lesser(S.reshape(places, shape=(1, -1)), S.reshape(lengths, shape=(-1, 1)))  # batch, length
    mask = S.broadcast_axis(S.expand_dims(valid, axis=1), axis=1, size=length)  # batch, length, length
    mask = S.reshape(S.broadcast_axis(S.expand_dims(mask, axis=1), axis=1, size=heads), shape=(-1, 0, 0), reverse=True)

    def dense(data, width, name, **options):
        return S.FullyConnected(data, num_hidden=width, flatten=False, name=name, **options)

    def split(data):
        """(batch * heads, length, units / heads)"""
        data = S.transpose(S.reshape(data, shape=(0, 0, heads, -1)), axes=(0, 2, 1, 3))
        return S.reshape(data, shape=(-1, 0, 0), reverse=True)

    for layer in range(layers):
        name = "l%d_" % layer
        query, key, value = [split(dense(y, units, name + part, no_bias=True)) for part in ("query", "key", "value")]
        scores = S.batch_dot(S.contrib.div_sqrt_dim(query), key, transpose_b=True)
        scores = S.where(mask, scores, NEVER * S.ones_like(scores))
        weights = S.Dropout(S.broadcast_mul(S.softmax(scores, axis=-1), mask), p=0.1)
        found = S.reshape(S.batch_dot(weights, value), shape=(-1, heads, 0, 0), reverse=True)
        found = S.reshape(S.transpose(found, axes=(0, 2, 1, 3)), shape=(0, 0, -1))
        y = S.LayerNorm(y + dense(found, units, name + "proj"), name=name + "ln1")
        inner = S.LeakyReLU(dense(y, hidden, name + "ffn1"), act_type="gelu")
        y = S.LayerNorm(y + dense(inner, units, name + "ffn2"), name=name + "ln2")
    y = S.SequenceMask(S.transpose(y, axes=(1, 0, 2)), lengths, use_sequence_length=True, value=0)
    y = S.transpose(y, axes=(1, 0, 2))
    mean = S.broadcast_div(S.sum(y, axis=1), S.expand_dims(lengths, axis=1))
    return S.Group([y, S.FullyConnected(mean, num_hidden=classes, name="cls")])


def main(graph, sizes, file):
    functions = {function.__name__: function for function in (faster_rcnn, gnmt, transformer_encoder)}
    functions[graph](**json.loads(sizes)).save(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
