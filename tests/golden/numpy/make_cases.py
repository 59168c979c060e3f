#!/usr/bin/env python3
"""Makes the cases of this folder: graphs of the operators of MXNet's NumPy interface, with MXNet's answers.

Needs PyPI mxnet 1.9.1 on Python 3.8 to 3.11 with numpy 1.23.5. Run it with MXNET_MKLDNN_ENABLED=0.
Each case is one graph with many outputs. `make_cases.py DIRECTORY` makes one case for each operator there instead, to find what fails.
"""
import ctypes
import json
import os
import subprocess
import sys

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, OpHandle, SymbolHandle, c_array, c_str, c_str_array, check_call, mx_uint

HERE = os.path.dirname(os.path.abspath(__file__))
mx.util.set_np(shape=True, array=True)

DRAW = np.random.RandomState(11)


def reals(*shape, dtype="float32", low=-3, high=3):
    return DRAW.uniform(low, high, shape).astype(dtype)


def whole(*shape, dtype="int32", low=-9, high=10):
    return DRAW.randint(low, high, shape).astype(dtype)


def bools(*shape):
    return DRAW.randint(0, 2, shape).astype("bool")


def definite(n):
    a = DRAW.uniform(-1, 1, (n, n))
    return (a @ a.T + n * np.eye(n)).astype("float32")


def inputs():
    """All inputs, by name. A case has those that it reads."""
    odd = np.array([np.nan, np.inf, -np.inf, 1.5, -2.5, 0.5, -0.5, 0.0, 3.25], "float32")
    return {
        "f": reals(2, 3), "g": reals(2, 3), "row": reals(3), "column": reals(2, 1), "scalar": reals(), "pos": reals(2, 3, low=0.2),
        "unit": reals(2, 3, low=-0.9, high=0.9), "odd": odd, "odd64": odd.astype("float64"), "odd16": odd.astype("float16"),
        "d": reals(2, 3, dtype="float64"), "h": reals(2, 3, dtype="float16"),
        "i": whole(2, 3), "j": whole(2, 3), "l": whole(2, 3, dtype="int64"), "b": whole(2, 3, dtype="int8"),
        "u": whole(2, 3, dtype="uint8", low=0), "nonzero": whole(2, 3, low=1, high=6), "p": bools(2, 3), "q": bools(2, 3),
        "prow": bools(3), "cube": reals(2, 3, 4), "cube2": reals(2, 4, 5), "four": reals(2, 3, 4, 2), "vec": reals(4), "vec3": reals(3),
        "m34": reals(3, 4), "m45": reals(4, 5), "m43": reals(4, 3), "m33": reals(3, 3), "square": reals(3, 3), "many": reals(2, 1, 3, 4),
        "batch": reals(5, 4, 3), "ones": reals(2, 1, 3), "spd": definite(3), "spd2": np.stack([definite(3), definite(3)]),
        "wide": reals(2, 4), "high": reals(4, 2), "inv": reals(6, 2, 3), "inv2": reals(2, 3, 6), "right": reals(2, 3), "six": reals(6),
        "cutoffs": np.array([0.5, 1e-6], "float32"), "weights": reals(2, 3, low=0.5, high=2), "wrow": reals(3, low=0.5, high=2),
        "percents": np.array([0, 37.5, 100], "float32"), "five": reals(5, 3), "coefficients": reals(3), "picture": reals(4, 6, 3),  # MXNet does not write the middle column of an odd number
        
        "iv": whole(4), "equal": np.ones((3, 3), "float32"), "q4": reals(2, 4, 3, 5), "k4": reals(2, 6, 3, 5), "w4": reals(2, 3, 4, 6),
        "hidden": reals(2, 4, 6), "kernel": reals(6, 3, 2), "one": reals(1, 3, 1), "image": reals(2, 3, 5), "indices": whole(2, 2, low=0, high=2),
    }


UNARY = ["absolute", "negative", "sign", "square", "floor", "ceil", "trunc", "fix", "rint", "reciprocal", "cbrt", "exp", "expm1", "sin",
         "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "degrees", "radians"]
QUESTIONS = ["isnan", "isinf", "isposinf", "isneginf", "isfinite", "logical_not"]
ARITHMETIC = ["add", "subtract", "multiply", "mod", "power", "true_divide"]
COMPARISONS = ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]


def npi(names, *sources, **attrs):
    return [("_npi_" + name, attrs, sources) for name in names]


def scalars(names, sources, **attrs):
    return [("_npi_%s_scalar" % name, attrs, (source,)) for name in names for source in sources]


def pairs(names, couples):
    return [("_npi_" + name, {}, couple) for name in names for couple in couples]


# name: tolerance, list of (operator, attributes, names of inputs)
CASES = {
    "functions": (2e-6, npi(UNARY, "f") + npi(["log", "log2", "log10", "log1p", "sqrt"], "pos") +
                  npi(["arcsin", "arccos", "arctanh"], "unit") + [("_npi_arccosh", {}, ("wrow",))] +
                  [("_npx_" + name, {}, ("f",)) for name in ("relu", "sigmoid", "erf", "softmax", "log_softmax")] +
                  [("_npx_erfinv", {}, ("unit",)), ("_npx_gamma", {}, ("pos",)), ("_npx_gammaln", {}, ("pos",)),
                   ("_npi_clip", {"a_min": -1, "a_max": 1.5}, ("f",)), ("_npi_cast", {"dtype": "int32"}, ("f",))]),
    "functions_of_integers": (0, npi(["absolute", "negative", "sign", "square", "floor", "rint", "exp", "sqrt", "cbrt", "sin", "tanh"], "nonzero") +
                              npi(["absolute", "negative", "square"], "b") + npi(["square", "floor"], "u") +
                              npi(["degrees", "arctan"], "i") + npi(["bitwise_not"], "i") + npi(["bitwise_not"], "u") +
                              npi(["bitwise_not", "logical_not"], "p")),
    "rounding": (1e-6, [("_npi_around", {"decimals": n}, (x,)) for n in (0, 1, -1) for x in ("f", "i")] +
                 [("_npi_around", {}, ("odd",)), ("_npi_rint", {}, ("odd",))]),
    "questions": (0, npi(QUESTIONS, "odd") + npi(QUESTIONS, "odd16") + npi(QUESTIONS, "i") +
                  [("_npi_nan_to_num", {"nan": 1.5, "posinf": 7, "neginf": -8}, (x,)) for x in ("odd", "i")]),
    "nan_to_num": (1e-6, [("_npi_nan_to_num", {}, (x,)) for x in ("odd", "odd64", "odd16")]),
    "arithmetic": (2e-6, pairs(ARITHMETIC, [("pos", "pos"), ("pos", "wrow")]) +
                   pairs(["add", "subtract", "multiply", "maximum", "minimum", "hypot", "arctan2", "copysign"],
                         [("f", "g"), ("f", "row"), ("column", "row"), ("scalar", "f"), ("f", "scalar")]) +
                   [("_npi_ldexp", {}, ("f", "g"))]),
    "promotion": (2e-3, pairs(["add", "multiply"], [(x, y) for x in "fdhilbup" for y in "fdhilbup" if {x, y} != {"b", "u"}]) +
                  pairs(["subtract", "mod"], [(x, y) for x in "fdh" for y in "fdhl"]) +
                  pairs(["true_divide"], [("f", "nonzero"), ("i", "nonzero"), ("h", "nonzero"), ("d", "nonzero"), ("p", "f")]) +
                  [("_npi_power", {}, ("nonzero", "nonzero")), ("_npi_power", {}, ("pos", "nonzero")), ("_npi_power", {}, ("p", "q")),
                   ("_npi_power", {}, ("nonzero", "pos"))]),
    "integers": (0, pairs(["add", "subtract", "multiply", "mod", "maximum", "minimum", "copysign", "lcm"] + BITS, [("i", "j"), ("b", "b"), ("u", "u")]) +
                 pairs(BITS + ["add", "multiply", "lcm"], [("p", "q")]) + [("_npi_ldexp", {}, ("i", "nonzero"))]),
    "comparisons": (0, pairs(COMPARISONS, [("f", "g"), ("i", "j"), ("p", "q"), ("h", "h"), ("f", "row")]) +
                    scalars(COMPARISONS, ["f", "i", "u", "p"], scalar=1) + scalars(COMPARISONS, ["f", "i"], scalar=0.5, is_int=False)),
    "scalars": (2e-6, scalars(["add", "subtract", "rsubtract", "multiply", "true_divide", "maximum", "minimum", "hypot", "arctan2",
                               "rarctan2", "copysign", "rcopysign", "ldexp", "mod"], ["f", "i", "b", "p"], scalar=2) +
                scalars(["add", "subtract", "rsubtract", "multiply", "true_divide", "maximum", "minimum", "hypot", "arctan2",
                         "rarctan2", "copysign", "rcopysign", "ldexp", "mod"], ["f", "i", "p"], scalar=-2.5, is_int=False) +
                scalars(["rtrue_divide", "rmod", "power", "rpower", "rldexp"], ["pos", "nonzero"], scalar=3) +
                scalars(["add", "power"], ["i"], scalar=2.5) + scalars(BITS, ["i", "u", "p"], scalar=5)),
    "reductions": (2e-6, [(op, at, ("cube",)) for op in ("_np_sum", "_np_prod", "_np_max", "_np_min", "_np_amax", "_np_amin", "_np_product",
                                                         "_npi_mean", "_npi_std", "_npi_var")
                          for at in ({}, {"axis": "(1,)"}, {"axis": "(0, -1)", "keepdims": True})] +
                   [(op, {"ddof": 1, "axis": "(1,)"}, ("cube",)) for op in ("_npi_std", "_npi_var")] +
                   [(op, {"ddof": 2, "keepdims": True}, ("cube",)) for op in ("_npi_std", "_npi_var")] +
                   [(op, {}, (x,)) for op in ("_np_sum", "_np_prod", "_npi_mean") for x in "ibup"] +
                   [(op, {}, ("i",)) for op in ("_np_max", "_np_min", "_npi_var", "_npi_std")] +
                   [("_npi_var", {"ddof": 1}, ("i",)), ("_npi_mean", {"dtype": "float64"}, ("i",)), ("_npi_mean", {"dtype": "int32"}, ("i",)),
                    ("_np_sum", {"dtype": "int32"}, ("f",)), ("_np_sum", {"dtype": "float64"}, ("i",))] +
                   [(op, at, (x,)) for op in ("_np_all", "_np_any", "_np_sometrue") for x in ("p", "i", "odd")
                    for at in ({}, {"axis": "(0,)"}, {"keepdims": True})] +
                   [("_np_cumsum", {"axis": 1}, (x,)) for x in ("f", "i", "p")] + [("_np_cumsum", {"dtype": "float64"}, ("i",))] +
                   [("_npi_average", {"axis": "(1,)"}, ("f", "weights")), ("_npi_average", {"axis": "(1,)"}, ("f", "wrow")),
                    ("_npi_average", {"returned": True, "axis": "(0,)"}, ("f", "weights")), ("_npi_average", {}, ("f", "weights")),
                    ("_npi_average", {"returned": True, "axis": "(1,)"}, ("f", "wrow")), ("_npi_average", {"weighted": False, "axis": "(0,)"}, ("f",)),
                    ("_npi_average", {}, ("i", "nonzero"))] +
                   [("_npi_percentile", {"q_scalar": 37.5, "interpolation": m, "axis": "(0,)"}, ("five",))
                    for m in ("linear", "lower", "higher", "midpoint", "nearest")] +
                   [("_npi_percentile", {"axis": "(1,)", "keepdims": True}, ("five", "percents")), ("_npi_percentile", {}, ("i", "percents"))]),
    "order": (0, [(op, at, (x,)) for op in ("_npi_argmax", "_npi_argmin") for at in ({}, {"axis": 1}, {"axis": 0, "keepdims": True})
                  for x in ("f", "i", "d")] + [("_npi_argmax", {"axis": 0}, ("row",)), ("_npi_argmax", {}, ("odd",)), ("_npi_argmin", {}, ("scalar",)),
                                               ("_npi_sort", {"axis": 1}, ("f",)), ("_npi_argsort", {"axis": 0, "dtype": "int64"}, ("f",)),
                                               ("_npx_topk", {"k": 2, "axis": 1, "ret_typ": "value"}, ("f",))]),
    "selection": (0, [("_npi_where", {}, ("p", x, y)) for x, y in (("f", "g"), ("i", "j"), ("p", "q"), ("f", "row"))] +
                  [("_npi_where", {}, ("prow", "f", "column")), ("_npi_where", {}, ("i", "f", "g"))] +
                  [("_npi_where_%sscalar" % side, {"scalar": 2.5}, ("p", x)) for side in "lr" for x in ("f", "i", "p", "d")] +
                  [("_npi_where_lscalar", {"scalar": 2.5}, ("prow", "f")), ("_npi_where_scalar2", {"x": 3, "y": -1.5}, ("p",)),
                   ("_npi_take", {"axis": 1}, ("cube", "indices"))]),
    "shapes": (0, [("_np_reshape", {"newshape": s}, ("cube",)) for s in ("(-1,)", "(4, -1)", "(2, 3, 4, 1)")] +
               [("_npx_reshape", {"newshape": s}, ("cube",)) for s in ("(-1,)", "(-2, -1)", "(-5, -4)", "(-2, -5)", "(-6, 1, 2, -4)", "(-6, -1, 2, -4)",
                                                                       "(-2, -2, -6, 2, -1)", "(-4, 1)", "(-2, -6, 1, -1, -2)")] +
               [("_npx_reshape", {"newshape": s}, ("one",)) for s in ("(-3, -4)", "(-3, -2, -3)", "(-2, -2, -3)")] +
               [("_npi_reshape", {"newshape": s, "reverse": True}, ("cube",)) for s in ("(-4, 2, -1)", "(-5, -2)", "(-1, -2)")] +
               [("_np_transpose", at, ("cube",)) for at in ({}, {"axes": "(-1, 0, 1)"}, {"axes": "(1, 0, 2)"})] +
               [("_np_moveaxis", {"source": s, "destination": t}, ("cube",)) for s, t in (("(0,)", "(-1,)"), ("(0, 1)", "(-1, 0)"), ("(2,)", "(0,)"))] +
               [("_npi_swapaxes", {"dim1": 0, "dim2": -1}, ("cube",))] +
               [("_np_roll", at, ("cube",)) for at in ({"shift": "(1,)"}, {"shift": "(-5,)", "axis": "(1,)"}, {"shift": "(1, -1)", "axis": "(2, 0)"},
                                                       {"shift": "(1,)", "axis": "(1, 2)"})] +
               [("_npi_rot90", {"k": k, "axes": a}, ("cube",)) for k in (-1, 0, 1, 2, 3) for a in ("(0, 1)", "(2, 1)")] +
               [("_npi_flip", {"axis": "(0, 2)"}, ("cube",)), ("_np_squeeze", {}, ("one",)), ("_npi_expand_dims", {"axis": -1}, ("cube",)),
                ("_npi_broadcast_to", {"shape": "(2, 2, 3)"}, ("ones",)), ("_npi_tile", {"reps": "(2, 1, 2)"}, ("f",)),
                ("_np_repeat", {"repeats": 2, "axis": 1}, ("f",)), ("_npi_slice", {"begin": "(0, 1)", "end": "(2, 3)"}, ("cube",))] +
               [("_np_atleast_%dd" % n, {"num_args": 4}, ("scalar", "row", "f", "cube")) for n in (1, 2, 3)]),
    "joining": (0, [("_npi_concatenate", {"num_args": 2, "axis": a}, ("f", "g")) for a in (0, 1, -1, "None")]),
    # Each by itself: MXNet does not infer their shapes beside others. And _npi_dsplit writes beyond MXNet's memory.
    "stack_first": (0, [("_npi_stack", {"num_args": 2, "axis": 0}, ("f", "g"))]),
    "stack_last": (0, [("_npi_stack", {"num_args": 2, "axis": -1}, ("f", "g"))]),
    "split_at": (0, [("_npi_split", {"indices": "(0, 1)", "axis": 1}, ("cube",))]),
    "split_in_two": (0, [("_npi_split", {"indices": "()", "sections": 2, "axis": 2}, ("cube",))]),
    "hsplit_cube": (0, [("_npi_hsplit", {"indices": "(0, 1)"}, ("cube",))]),
    "hsplit_vector": (0, [("_npi_hsplit", {"indices": "()", "sections": 2}, ("vec",))]),
    "hsplit_matrix": (0, [("_npi_hsplit", {"indices": "()", "sections": 2}, ("m34",))]),
    "borders": (0, [("_npi_pad", {"pad_width": "((1, 2), (0, 3))", "mode": m, "constant_value": 2.5}, (x,))
                    for m in ("constant", "edge", "reflect", "symmetric", "maximum", "minimum") for x in ("f", "i")] +
                [("_npi_pad", {"pad_width": "((0, 0), (5, 7))", "mode": m}, ("f",)) for m in ("edge", "reflect", "symmetric")] +
                [("_npi_pad", {"pad_width": "((0, 0), (0, 0), (1, 2))", "mode": m}, ("cube",)) for m in ("constant", "reflect", "maximum")] +
                [("_npi_pad", {"pad_width": "((0, 0), (1, 0), (1, 2), (2, 2))", "mode": m}, ("four",)) for m in ("constant", "edge")]),
    "diagonals": (1e-6, [("_npi_tril", {"k": k}, (x,)) for k in (0, 1, -1, -5) for x in ("m34", "cube", "row", "i")] +
                  [("_np_trace", at, ("cube",)) for at in ({}, {"offset": 1}, {"axis1": -1, "axis2": 0})] + [("_np_trace", {}, ("m34",)), ("_np_trace", {}, ("i",))] +
                  [("_np_diagflat", {"k": k}, (x,)) for k in (0, 1, -1) for x in ("f", "row")] +
                  [("_np_diag", {"k": 1}, (x,)) for x in ("m34", "row")] + [("_np_diagonal", {"offset": -1, "axis1": 2, "axis2": 1}, ("cube",)),
                                                                           ("_npi_diag_indices_from", {}, ("equal",))]),
    "differences": (2e-6, [("_npi_diff", at, ("cube",)) for at in ({}, {"n": 2}, {"n": 0}, {"axis": 0}, {"n": 2, "axis": 1})] + [("_npi_diff", {}, ("u",))] +
                    [("_npi_ediff1d", {}, ("f",)), ("_npi_ediff1d", {"to_begin_scalar": 5, "to_end_scalar": 6.5}, ("f",)),
                     ("_npi_ediff1d", {"to_begin_arr_given": True, "to_end_arr_given": True}, ("f", "row", "g")),
                     ("_npi_ediff1d", {"to_end_arr_given": True, "to_begin_scalar": 1}, ("f", "row")), ("_npi_ediff1d", {"to_end_scalar": 2.5}, ("i",)),
                     ("_npi_polyval", {}, ("coefficients", "cube")), ("_npi_polyval", {}, ("iv", "i"))]),
    "creation": (2e-6, [("_npi_" + op, {"M": n, "dtype": t}, ()) for op in ("hanning", "hamming", "blackman") for n in (1, 6) for t in ("float32", "float64")] +
                 [("_npi_hanning", {"M": 5, "dtype": "int32"}, ()), ("_npi_logspace", {"start": 0, "stop": 2, "num": 4}, ()),
                  ("_npi_logspace", {"start": 0, "stop": 2, "num": 4, "endpoint": False, "base": 2, "dtype": "float64"}, ()),
                  ("_npi_logspace", {"start": 0, "stop": 2, "num": 5, "dtype": "int32"}, ()), ("_npi_indices", {"dimensions": "(2, 3)"}, ()),
                  ("_npi_indices", {"dimensions": "(2, 1, 3)", "dtype": "float32"}, ()), ("_npi_eye", {"N": 3, "k": 1}, ()),
                  ("_npi_arange", {"start": 1, "stop": 4}, ()), ("_npi_linspace", {"start": 0, "stop": 1, "num": 4}, ()),
                  ("_npi_full_like", {"fill_value": 2}, ("f",)), ("_npi_identity", {"shape": "(3, 3)"}, ()), ("_npx_shape_array", {}, ("cube",)),
                  ("_npi_zeros", {"shape": "(2,)"}, ()), ("_npi_ones", {"shape": "()", "dtype": "int32"}, ())]),
    "columns": (0, [("_npi_column_stack", {"num_args": 2}, ("vec3", "m33"))]),
    "histograms": (1e-6, [("_npi_histogram", {"bin_cnt": 3, "range": "(-2, 2.5)"}, (x,)) for x in ("f", "d", "i")] + [("_npi_histogram", {}, ("f", "edges"))]),
    "slices": (0, [("_npi_slice_assign", {"begin": "(0, 1)", "end": "(2, 3)"}, ("f", "high2")), ("_npi_slice_assign_scalar",
                                                                                              {"begin": "(0, 0)", "end": "(2, None)", "step": "(1, 2)", "scalar": 9}, ("f",)),
                   ("_npi_slice_assign", {"begin": "(None, 0)", "end": "(None, 3)", "step": "(-1, 2)"}, ("f", "high2"))]),
    "products": (2e-6, [("_npi_matmul", {}, couple) for couple in (("vec", "vec"), ("m34", "vec"), ("vec", "m45"), ("m34", "m45"), ("cube", "vec"), ("cube", "cube2"),
                                                                   ("vec", "cube2"), ("cube", "m45"), ("m34", "cube2"), ("many", "batch"))] +
                 [("_np_dot", {}, couple) for couple in (("vec", "vec"), ("m34", "vec"), ("vec", "m45"), ("m34", "m45"), ("cube", "vec"), ("cube", "m45"),
                                                         ("cube", "cube2"), ("vec", "cube2"), ("scalar", "f"), ("f", "scalar"), ("scalar", "scalar"))] +
                 [("_npi_tensordot_int_axes", {"axes": n}, couple) for n, couple in ((1, ("cube", "m43")), (2, ("cube", "m34")), (0, ("f", "row")), (1, ("vec", "vec")))] +
                 [("_npi_tensordot", {"a_axes_summed": s, "b_axes_summed": t}, couple) for s, t, couple in
                  (("(1, 2)", "(0, 1)", ("cube", "m34")), ("(-1,)", "(-1,)", ("cube", "m34")), ("(0, 2)", "(0, 1)", ("cube", "cube2")), ("(0,)", "(1,)", ("m34", "f")))]),
    "einsum": (3e-6, [("_npi_einsum", {"subscripts": s, "num_args": len(x)}, x) for s, x in (
        ("ij,jk->ik", ("m34", "m45")), ("ij,jk", ("m34", "m45")), ("ij,jk->ki", ("m34", "m45")), ("ii->i", ("square",)), ("ii", ("square",)), ("ij->ji", ("m34",)),
        ("ij->", ("m34",)), ("ij->j", ("m34",)), ("bqhd,bkhd->bhqk", ("q4", "k4")), ("bhqk,bkhd->bqhd", ("w4", "k4")), ("btd,dhk->bthk", ("hidden", "kernel")),
        ("bthk,dhk->btd", ("bthk", "kernel")), ("i,j,k->ijk", ("row", "vec", "six")), ("...ij,...jk->...ik", ("many", "batch2")), ("i,i->", ("vec", "vec")),
        ("ij,j->i", ("m34", "vec")), ("i,j->ij", ("row", "vec")), ("bi,bi->b", ("f", "g")), ("ij,ij->ij", ("f", "g")), (" ij , kj -> ik ", ("f", "g")),
        ("...i->...", ("cube",)), ("i...", ("cube",)), ("ba", ("f",)), ("Ab,bC->CA", ("m34", "m45")), ("ij,ij->i", ("i", "j")), ("ij,ik,il->jkl", ("f", "g", "high2")))]),
    "equations": (2e-4, [("_npi_cholesky", {}, (x,)) for x in ("spd", "spd2")] +
                  [("_npi_solve", {}, ("spd", "m33")), ("_npi_solve", {}, ("spd", "row")), ("_npi_inv", {}, ("spd2",)), ("_npi_det", {}, ("spd",)),
                   ("_npi_det", {}, ("spd2",)), ("_npi_slogdet", {}, ("spd2",)), ("_npi_slogdet", {}, ("spd",)), ("_npi_tensorinv", {"ind": 1}, ("inv",)),
                   ("_npi_tensorinv", {"ind": 2}, ("inv2",)), ("_npi_tensorsolve", {}, ("inv2", "right")),
                   ("_npi_tensorsolve", {"a_axes": "(1,)"}, ("inv3", "right")), ("_npi_eigh", {}, ("spd",)), ("_npi_eigh", {"UPLO": "U"}, ("square",)),
                   ("_npi_eigvalsh", {}, ("spd2",)), ("_npi_eigvalsh", {"UPLO": "U"}, ("square",)), ("_npi_svd", {}, ("square",)), ("_npi_svd", {}, ("wide",)),
                   ("_npi_pinv_scalar_rcond", {}, ("wide",)), ("_npi_pinv_scalar_rcond", {}, ("high",)), ("_npi_pinv_scalar_rcond", {"rcond": 0.5}, ("square",)),
                   ("_npi_pinv", {}, ("spd2", "cutoffs"))]),
    "norms": (3e-6, [("_npi_norm", at, ("cube",)) for at in ({"flag": -2}, {"flag": 1, "axis": "(0, 1)"}, {"flag": 1, "axis": "(1,)"}, {"flag": -1, "axis": "(1,)"},
                                                             {"flag": -1, "axis": "(2,)", "ord": 3, "keepdims": True}, {"flag": -1, "axis": "(1,)", "ord": 1},
                                                             {"flag": -1, "axis": "(1,)", "ord": 0}, {"flag": -1, "axis": "(1,)", "ord": 0.5},
                                                             {"flag": -2, "keepdims": True})] + [("_npi_norm", {"flag": 1}, ("f",))]),
    "pictures": (1e-5, [("_npx__image_flip_left_right", {}, ("picture",)), ("_npx__image_flip_top_bottom", {}, ("picture",)),
                        ("_npx__image_adjust_lighting", {"alpha": "(0.1, 0.2, 0.3)"}, ("picture",))]),
}

# Each by itself, too: beside others, MXNet takes wrong shapes for them.
CASES.update({"%s_%s_%s" % (op, *couple): (0, [("_npi_" + op, {"num_args": 2}, couple)]) for op in ("vstack", "hstack", "dstack", "column_stack")
              for couple in (("row", "vec3"), ("f", "g"), ("scalar", "scalar"), ("i", "j"))})


def more_inputs(arrays):
    arrays["high2"] = reals(2, 2)
    arrays["edges"] = np.array([-2, 0, 0.5, 3], "float32")
    arrays["batch2"] = reals(2, 4, 5)
    arrays["inv3"] = reals(2, 6, 3)
    arrays["bthk"] = reals(2, 4, 3, 2)
    return arrays


def symbol(op, attrs, sources, name):
    """A node of any operator, also of those that have no function in Python."""
    op_handle, handle = OpHandle(), SymbolHandle()
    check_call(_LIB.NNGetOpHandle(c_str(op), ctypes.byref(op_handle)))
    keys, values = list(attrs), [str(value) for value in attrs.values()]
    check_call(_LIB.MXSymbolCreateAtomicSymbol(op_handle, mx_uint(len(keys)), c_str_array(keys), c_str_array(values), ctypes.byref(handle)))
    check_call(_LIB.NNSymbolCompose(handle, c_str(name), mx_uint(len(sources)), None, c_array(SymbolHandle, [s.handle for s in sources])))
    return mx.sym.Symbol(handle)


def make(directory, name, tolerance, nodes, arrays):
    variables, made = {}, []
    for number, (op, attrs, sources) in enumerate(nodes):
        for source in sources:
            variables.setdefault(source, mx.sym.Variable(source))
        made.append(symbol(op, attrs, [variables[source] for source in sources], "n%d" % number))
    group = mx.sym.Group(made)
    given = {source: mx.np.array(arrays[source], dtype=arrays[source].dtype).as_nd_ndarray() for source in group.list_arguments()}
    outputs = group.bind(mx.cpu(), given, grad_req="null").forward(is_train=False)
    prefix = os.path.join(directory, name)
    group.save(prefix + "-symbol.json")
    mx.nd.save(prefix + "-0000.params", {})
    stored = {"in:" + source: array for source, array in given.items()}
    stored.update({"out:%d" % i: output for i, output in enumerate(outputs)})
    mx.nd.save(prefix + "-io.params", stored)
    return {"name": name, "tolerance": tolerance}


def one_case(directory, name, each):
    """Entries of cases.json, for one case or for each of its operators."""
    arrays = more_inputs(inputs())
    tolerance, nodes = CASES[name]
    if not each:
        return [make(directory, name, tolerance, nodes, arrays)]
    entries = []
    for number, node in enumerate(nodes):
        text = "%s %s %s" % (node[0], " ".join("%s=%s" % item for item in node[1].items()), " ".join(node[2]))
        try:
            entries.append(dict(make(directory, "%s-%d" % (name, number), tolerance, [node], arrays), node=text))
        except Exception as error:  # what MXNet refuses is reported and left out
            print(text, str(error).strip().split("\n")[-1][:150], file=sys.stderr)
    return entries


def main():
    if len(sys.argv) > 2:
        print(json.dumps(one_case(sys.argv[1], sys.argv[2], sys.argv[1] != HERE)))
        return
    directory = sys.argv[1] if len(sys.argv) > 1 else HERE
    entries = []
    for name in CASES:  # each in a process of its own: MXNet may damage its memory, and another case would suffer
        run = subprocess.run([sys.executable, __file__, directory, name], stdout=subprocess.PIPE)
        if run.returncode:
            print("%s: MXNet ended with %d" % (name, run.returncode), file=sys.stderr)
        else:
            entries += json.loads(run.stdout.splitlines()[-1])
    with open(os.path.join(directory, "cases.json"), "w") as file:
        json.dump(entries, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
