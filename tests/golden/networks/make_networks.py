"""Small networks as test cases, with MXNet's answers: make_networks.py ORACLE ROOT writes ROOT/networks.

ORACLE is the folder of networks.py and fill.py, which say what the files hold; needs mxnet 1.9.1 on Python 3.8. The graphs that tools/bench
measures in other sizes are in tools/benchmarks/mxnet_networks.py."""
import sys
from pathlib import Path
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop(1))
sys.path.append(str(Path(__file__).resolve().parents[3] / "tools" / "benchmarks"))  # behind ORACLE, which has a networks.py, too
import networks as N
import mxnet_networks
import mxnet as mx, numpy as np
_inf=mx.sym.Symbol.infer_shape
def inf(self,*a,**k):
    r=_inf(self,*a,**k)
    return self.infer_shape_partial(*a,**k) if r[0] is None else r
mx.sym.Symbol.infer_shape=inf
S=mx.sym; v=S.var
def bilstm_varlen():
    x=v("data"); ln=v("len")
    r=S.RNN(x,v("rnn_parameters"),S.zeros((4,2,6)),S.zeros((4,2,6)),state_size=6,num_layers=2,mode="lstm",bidirectional=True,state_outputs=True)
    rev=S.SequenceReverse(r[0],ln,use_sequence_length=True)
    return S.Group([rev,S.SequenceLast(r[0],ln,use_sequence_length=True),r[1],r[2]])
def whiles(which):
    x=v("data")
    def cond(i,a): return i<4
    def func(i,a):
        y=S.tanh(S.FullyConnected(a,v("w_weight",shape=(6,6)),v("w_bias",shape=(6,)),num_hidden=6)); return [y,S.sum(y,axis=1)],[i+1,y]
    outs,states=S.contrib.while_loop(cond,func,[S.zeros((1,)),x],max_iterations=4)
    c=S.contrib.cond(S.sum(x)>0,lambda: S.FullyConnected(x,v("t_weight",shape=(3,6)),num_hidden=3,no_bias=True),lambda: S.FullyConnected(x,v("e_weight",shape=(3,6)),num_hidden=3,no_bias=True)*2)
    def nested(d,s):
        o,st=S.contrib.foreach(lambda r,z:(S.broadcast_mul(r,z[0]),[z[0]+S.sum(r)*0.1]),d,[s[0]])
        return o,[st[0]]
    o2,s2=S.contrib.foreach(nested,S.reshape(x,shape=(2,3,2)),[S.ones((1,))])
    return {"while":S.Group([*outs,*states[1:]]),"cond":c,"nested":S.Group([o2,s2[0]]),"all":S.Group([*outs,*states[1:],c,o2,s2[0]])}[which]
def unrolled():
    stack=mx.rnn.SequentialRNNCell(); stack.add(mx.rnn.LSTMCell(8,prefix="lstm_l0_",forget_bias=2.0)); stack.add(mx.rnn.ResidualCell(mx.rnn.GRUCell(8,prefix="gru_l1_"))); stack.add(mx.rnn.ZoneoutCell(mx.rnn.RNNCell(8,prefix="rnn_l2_"),0.0,0.0)); 
    e=S.Embedding(v("data"),input_dim=20,output_dim=8,name="embed")
    outs,states=stack.unroll(5,inputs=e,merge_outputs=True,layout="NTC")
    p=S.FullyConnected(S.Reshape(outs,shape=(-1,8)),num_hidden=20,name="pred")
    return S.SoftmaxOutput(p,S.Reshape(v("softmax_label"),shape=(-1,)),name="softmax")
def bidir_unrolled():
    cell=mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(6,prefix="l_"),mx.rnn.LSTMCell(6,prefix="r_"))
    outs,_=cell.unroll(4,inputs=S.Embedding(v("data"),input_dim=20,output_dim=5,name="embed"),merge_outputs=True,layout="NTC")
    return S.SoftmaxOutput(S.FullyConnected(outs,num_hidden=3,name="fc"),name="softmax")
def textcnn():
    e=S.expand_dims(S.Embedding(v("data"),input_dim=50,output_dim=10,name="embed"),axis=1); ps=[]
    for k in (3,4,5):
        c=S.Activation(S.Convolution(e,kernel=(k,10),num_filter=6,name="conv%d"%k),act_type="relu"); ps.append(S.Pooling(c,pool_type="max",kernel=(16-k+1,1),stride=(1,1)))
    h=S.Reshape(S.Concat(*ps,dim=1),shape=(-1,18))
    hw=S.FullyConnected(h,num_hidden=18,name="hw"); t=S.sigmoid(S.FullyConnected(h,num_hidden=18,name="hwt")); h=S.relu(hw)*t+h*(1-t)
    return S.SoftmaxOutput(S.FullyConnected(S.Dropout(h,0.5),num_hidden=2,name="cls"),name="softmax")
def build(n):
    a={"w_weight":[6,6],"w_bias":[6]}; b={"t_weight":[3,6],"e_weight":[3,6]}
    WS={"while":a,"cond":b,"nested":{},"all":{**a,**b}}
    pic=N.image(1,3,96,128,blocks=8); info={"im_info":{"shape":[1,3],"value":96}}
    def add(name,f,inputs,**k):
        with mx.name.NameManager():
            n.add(name, f(), inputs, **k)
    rcnn=dict(widths=(8,16,24),blocks=(0,1,0),rpn_width=32,scales=(2,4),ratios=(0.5,1,2),before_nms=60,boxes=16,least_size=4,pooled=5,
              hidden=48,classes=4)
    for name,more in (("like",dict(candidates=40,detections=10)),("classic",{}),("multi",dict(proposal="MultiProposal"))):
        add("faster-rcnn-"+name,lambda:mxnet_networks.faster_rcnn(**rcnn,**more),{**pic,**info},tolerance=1e-4)
    G={"src":{"shape":[2,7],"ids":30},"tgt":{"shape":[2,5],"ids":30},"src_len":{"shape":[2],"value":5}}
    sizes=dict(batch=2,source=7,target=5,units=16,embedding=12,vocabulary=30,encoder_layers=2,decoder_layers=1,one_query=False)
    for loop in ("foreach","unrolled"): add("gnmt-"+loop,lambda:mxnet_networks.gnmt(loop,**sizes),G)
    add("bilstm-varlen",bilstm_varlen,{"data":{"shape":[6,2,5],"offset":0.0,"scale":1.0},"len":{"shape":[2],"value":4}})
    sizes=dict(layers=2,units=24,heads=4,hidden=48,length=10,positions=20,classes=3)
    add("transformer-encoder",lambda:mxnet_networks.transformer_encoder(**sizes),{"data":{"shape":[2,10,24],"offset":0.0,"scale":1.0},"valid_length":{"shape":[2],"value":7}})
    for w in ("while","cond","nested","all"): add("control-"+w,lambda:whiles(w),{"data":{"shape":[2,6],"offset":0.0,"scale":1.0},**({k:{"shape":sh,"offset":0.0,"scale":0.5} for k,sh in WS[w].items()})})
    add("unrolled-cells",unrolled,{"data":{"shape":[2,5],"ids":20}},labels={"softmax_label":(2,5)})
    add("bidirectional-cells",bidir_unrolled,{"data":{"shape":[2,4],"ids":20}},labels={"softmax_label":()})
    add("text-cnn",textcnn,{"data":{"shape":[2,16],"ids":50}},labels={"softmax_label":()})
N.main(build)
