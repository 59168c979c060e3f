"""Cuts the detection head off a graph in MXNet's JSON, so that every engine can run the rest. Needs only the standard library."""

# Operators of detection without a twin in ONNX's own operator set that computes the same.
DETECTION = {"_contrib_MultiBoxPrior", "_contrib_MultiBoxDetection", "_contrib_MultiBoxTarget", "_contrib_Proposal", "_contrib_MultiProposal",
             "_contrib_box_nms", "_contrib_box_non_maximum_suppression", "_contrib_box_decode", "_contrib_bipartite_matching",
             "_contrib_ROIAlign", "ROIPooling", "_contrib_PSROIPooling"}


class CutError(ValueError):
    """The graph cannot be cut: says why."""


def reach(nodes, starts):
    """The numbers of the nodes that these entries need, themselves included."""
    seen, left = set(), [entry[0] for entry in starts]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += [entry[0] for entry in nodes[node]["inputs"]]
    return seen


def is_before(nodes, entry, others):
    """Does one of the other entries need this one?"""
    return any(entry[0] in reach(nodes, nodes[other[0]]["inputs"]) for other in others if other != entry)


def cut(symbol):
    """The same graph without its detection operators and all that needs them. Its heads are the old heads that are left, then the values
    that went into what was cut, except those that another head needs anyway. So a value leaves the network only where the head began.
    Errors: CutError"""
    nodes = symbol["nodes"]
    gone = set()
    for number, node in enumerate(nodes):  # in the order of execution
        if node["op"] in DETECTION or any(entry[0] in gone for entry in node["inputs"]):
            gone.add(number)
    if not gone:
        raise CutError("the graph has no detection operators")
    heads = [list(head) for head in symbol["heads"] if head[0] not in gone]
    for number in sorted(gone):
        for entry in map(list, nodes[number]["inputs"]):
            if entry[0] not in gone and nodes[entry[0]]["op"] != "null" and entry not in heads:
                heads.append(entry)
    heads = [head for head in heads if not is_before(nodes, head, heads)]
    if not heads:
        raise CutError("nothing is left before the detection operators")
    return pruned(symbol, heads)


def pruned(symbol, heads):
    """The part of the graph that these heads need, with new numbers."""
    kept = sorted(reach(symbol["nodes"], heads))
    numbers = {old: new for new, old in enumerate(kept)}

    def renumbered(entries):
        return [[numbers[entry[0]], *entry[1:]] for entry in entries]

    nodes = []
    for old in kept:
        node = dict(symbol["nodes"][old], inputs=renumbered(symbol["nodes"][old]["inputs"]))
        node.pop("control_deps", None)
        nodes.append(node)
    result = {key: value for key, value in symbol.items() if key != "node_row_ptr"}
    return {**result, "nodes": nodes, "arg_nodes": [number for number, node in enumerate(nodes) if node["op"] == "null"],
            "heads": renumbered(heads)}
