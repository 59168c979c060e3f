"""Small networks as test cases, with MXNet's answers: make_networks.py ORACLE ROOT writes ROOT/networks.

ORACLE is the folder of networks.py and fill.py, which say what the files hold; needs mxnet 1.9.1 on Python 3.8."""
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv.pop(1))
import networks as N
import mxnet as mx, numpy as np
_inf=mx.sym.Symbol.infer_shape
def inf(self,*a,**k):
    r=_inf(self,*a,**k)
    return self.infer_shape_partial(*a,**k) if r[0] is None else r
mx.sym.Symbol.infer_shape=inf
S=mx.sym; v=S.var
def conv(x,f,k,name,s=1,p=None):
    p=k//2 if p is None else p
    x=S.Convolution(x,num_filter=f,kernel=(k,k),stride=(s,s),pad=(p,p),no_bias=True,name=name)
    x=S.BatchNorm(x,fix_gamma=False,name=name+"_bn"); return S.Activation(x,act_type="relu",name=name+"_relu")
def backbone(x):
    x=conv(x,8,3,"c1",2); x=conv(x,16,3,"c2",2)
    y=conv(x,16,3,"c3"); y=S.Convolution(y,num_filter=16,kernel=(3,3),pad=(1,1),name="c4"); x=S.Activation(x+y,act_type="relu")
    return conv(x,24,3,"c5",2)
def rpn(f,A):
    r=S.Activation(S.Convolution(f,num_filter=32,kernel=(3,3),pad=(1,1),name="rpn_conv"),act_type="relu")
    score=S.Convolution(r,num_filter=2*A,kernel=(1,1),name="rpn_cls_pred_conv"); box=S.Convolution(r,num_filter=4*A,kernel=(1,1),name="rpn_bbox_pred_conv")
    prob=S.reshape(S.softmax(S.reshape(score,shape=(0,2,-1,0)),axis=1),shape=(0,2*A,-1,0))
    return prob,box
def frcnn(classic, op="Proposal", batch=1):
    A=6; C=4; x=v("data"); f=backbone(x); prob,box=rpn(f,A)
    P=dict(feature_stride=8,scales=(2,4),ratios=(0.5,1,2),rpn_pre_nms_top_n=60,rpn_post_nms_top_n=16,threshold=0.7,rpn_min_size=4)
    rois=getattr(S.contrib,op)(prob,box,v("im_info"),name="rois",**P)
    if classic: pooled=S.ROIPooling(f,rois,pooled_size=(5,5),spatial_scale=1/8)
    else: pooled=S.contrib.ROIAlign(f,rois,pooled_size=(5,5),spatial_scale=1/8,sample_ratio=2)
    h=S.Activation(S.FullyConnected(S.Flatten(pooled),num_hidden=48,name="fc6"),act_type="relu")
    h=S.Activation(S.FullyConnected(h,num_hidden=48,name="fc7"),act_type="relu")
    cls=S.softmax(S.FullyConnected(h,num_hidden=C+1,name="cls_pred_conv"),axis=-1)
    reg=S.FullyConnected(h,num_hidden=4*(C if not classic else C+1),name="bbox_pred_conv")
    if classic: return S.Group([rois,S.reshape(cls,shape=(1,-1,C+1)),S.reshape(reg,shape=(1,-1,4*(C+1)))])
    roi=S.reshape(S.slice_axis(rois,axis=-1,begin=1,end=None),shape=(1,-1,4))      # (1,N,4)
    scores=S.slice_axis(cls,axis=-1,begin=1,end=None)  # N,C
    out=[]
    for c in range(C):
        d=S.slice_axis(reg,axis=-1,begin=4*c,end=4*c+4)
        b=S.contrib.box_decode(S.reshape(d,shape=(1,-1,4)),roi,std0=.1,std1=.1,std2=.2,std3=.2,clip=4.0,format="corner")
        s=S.reshape(S.slice_axis(scores,axis=-1,begin=c,end=c+1),shape=(1,-1,1))
        out.append(S.concat(S.ones_like(s)*c,s,b,dim=-1))
    r=S.concat(*out,dim=1)
    r=S.contrib.box_nms(r,overlap_thresh=0.3,topk=40,valid_thresh=0.05,id_index=0,score_index=1,coord_start=2,force_suppress=False)
    r=S.slice_axis(r,axis=1,begin=0,end=10)
    return S.Group([S.slice_axis(r,axis=-1,begin=0,end=1),S.slice_axis(r,axis=-1,begin=1,end=2),S.slice_axis(r,axis=-1,begin=2,end=6)])
def gnmt(kind):
    T,B,H,L,V=7,2,16,5,30
    src=v("src"); tgt=v("tgt"); ln=v("src_len")
    emb=S.Embedding(src,input_dim=V,output_dim=12,name="src_embed")
    e=S.transpose(emb,axes=(1,0,2))
    enc=S.RNN(e,v("enc_l0_parameters"),S.zeros((2,B,H//2)),S.zeros((2,B,H//2)),state_size=H//2,num_layers=1,mode="lstm",bidirectional=True,state_outputs=True,name="enc0")
    m=S.SequenceMask(enc[0],ln,use_sequence_length=True)
    enc2=S.RNN(m,v("enc_l1_parameters"),S.zeros((2,B,H)),S.zeros((2,B,H)),state_size=H,num_layers=2,mode="lstm",state_outputs=True,name="enc1")
    mem=S.transpose(S.SequenceMask(enc2[0]+m,ln,use_sequence_length=True),axes=(1,0,2)) # B,T,H
    key=S.FullyConnected(mem,num_hidden=H,flatten=False,no_bias=True,name="key_proj")
    temb=S.transpose(S.Embedding(tgt,input_dim=V,output_dim=12,name="tgt_embed"),axes=(1,0,2))
    mask=S.SequenceMask(S.ones((T,B)),ln,use_sequence_length=True); mask=S.expand_dims(S.transpose(mask),axis=1)  # B,1,T
    h0=S.squeeze(S.slice_axis(enc2[1],axis=0,begin=1,end=2),axis=0); c0=S.squeeze(S.slice_axis(enc2[2],axis=0,begin=1,end=2),axis=0)
    cell=mx.rnn.LSTMCell(H,prefix="dec_") if kind=="unrolled" else None
    def step(x,h,c,att):
        z=S.concat(x,att,dim=-1)
        if cell is not None:
            h2,(h,c)=cell(z,[h,c])
        else:
            g=S.FullyConnected(z,v("dec_i2h_weight",shape=(4*H,12+H)),v("dec_i2h_bias",shape=(4*H,)),num_hidden=4*H)+S.FullyConnected(h,v("dec_h2h_weight",shape=(4*H,H)),v("dec_h2h_bias",shape=(4*H,)),num_hidden=4*H)
            i,f_,gg,o=list(S.SliceChannel(g,num_outputs=4))
            c=S.sigmoid(f_)*c+S.sigmoid(i)*S.tanh(gg); h=S.sigmoid(o)*S.tanh(c); h2=h
        q=S.expand_dims(S.FullyConnected(h2,v("query_weight",shape=(H,H)),num_hidden=H,no_bias=True),axis=1)
        sc=S.batch_dot(q,key,transpose_b=True)*(H**-0.5)
        sc=S.where(mask,sc,S.ones_like(sc)*-1e18)
        w=S.softmax(sc,axis=-1)*mask
        att=S.reshape(S.batch_dot(w,mem),shape=(-1,H))
        return h2,h,c,att
    att0=S.zeros((B,H))
    if kind=="foreach":
        def body(x,states):
            h2,h,c,a=step(x,*states); return S.concat(h2,a,dim=-1),[h,c,a]
        outs,states=S.contrib.foreach(body,temb,[h0,c0,att0])
        y=outs
    else:
        xs=S.SliceChannel(temb,num_outputs=L,axis=0,squeeze_axis=True)
        h,c,a=h0,c0,att0; r=[]
        for t in range(L):
            h2,h,c,a=step(xs[t],h,c,a); r.append(S.concat(h2,a,dim=-1))
        y=S.stack(*r,axis=0); states=[h,c,a]
    o=S.FullyConnected(y,num_hidden=V,flatten=False,name="out_proj")
    return S.Group([S.softmax(o,axis=-1),states[0],states[1]])
def bilstm_varlen():
    x=v("data"); ln=v("len")
    r=S.RNN(x,v("rnn_parameters"),S.zeros((4,2,6)),S.zeros((4,2,6)),state_size=6,num_layers=2,mode="lstm",bidirectional=True,state_outputs=True)
    rev=S.SequenceReverse(r[0],ln,use_sequence_length=True)
    return S.Group([rev,S.SequenceLast(r[0],ln,use_sequence_length=True),r[1],r[2]])
def encoder():
    B,T,H,heads=2,10,24,4
    x=v("data"); ln=v("valid_length")
    pos=S.slice_like(v("position_weight",shape=(20,H)),S.reshape(S.slice_axis(x,axis=0,begin=0,end=1),shape=(-1,H)),axes=(0,))
    h=S.broadcast_add(x*float(H)**0.5,S.expand_dims(pos,axis=0))
    h=S.LayerNorm(h,v("ln0_gamma"),v("ln0_beta"),name="ln0")
    ar=S.contrib.arange_like(x,axis=1)
    steps=S.broadcast_lesser(S.reshape(ar,shape=(1,-1)),S.reshape(ln,shape=(-1,1)))  # B,T
    mask=S.broadcast_axis(S.expand_dims(steps,axis=1),axis=1,size=T)  # B,T,T
    def split(z): return S.reshape(S.transpose(S.reshape(z,shape=(0,0,heads,-1)),axes=(0,2,1,3)),shape=(-1,0,0),reverse=True)
    mh=S.reshape(S.broadcast_axis(S.expand_dims(mask,axis=1),axis=1,size=heads),shape=(-1,0,0),reverse=True)
    for l in range(2):
        p="l%d_"%l
        q,k,u=[split(S.FullyConnected(h,num_hidden=H,flatten=False,no_bias=True,name=p+n)) for n in ("query","key","value")]
        s=S.batch_dot(S.contrib.div_sqrt_dim(q),k,transpose_b=True)
        s=S.where(mh,s,-1e18*S.ones_like(s)); w=S.broadcast_mul(S.softmax(s,axis=-1),mh)
        w=S.Dropout(w,p=0.1)
        a=S.batch_dot(w,u)
        a=S.reshape(S.transpose(S.reshape(a,shape=(-1,heads,0,0),reverse=True),axes=(0,2,1,3)),shape=(0,0,-1))
        a=S.FullyConnected(a,num_hidden=H,flatten=False,name=p+"proj")
        h=S.LayerNorm(h+a,name=p+"ln1")
        f=S.FullyConnected(S.LeakyReLU(S.FullyConnected(h,num_hidden=48,flatten=False,name=p+"ffn1"),act_type="gelu"),num_hidden=H,flatten=False,name=p+"ffn2")
        h=S.LayerNorm(h+f,name=p+"ln2")
    m=S.transpose(S.SequenceMask(S.transpose(h,axes=(1,0,2)),ln,use_sequence_length=True,value=0),axes=(1,0,2))
    pooled=S.broadcast_div(S.sum(m,axis=1),S.expand_dims(ln,axis=1))
    return S.Group([m,S.FullyConnected(pooled,num_hidden=3,name="cls")])
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
    add("faster-rcnn-like",lambda:frcnn(False),{**pic,**info},tolerance=1e-4)
    add("faster-rcnn-classic",lambda:frcnn(True),{**pic,**info},tolerance=1e-4)
    add("faster-rcnn-multi",lambda:frcnn(True,"MultiProposal"),{**pic,**info},tolerance=1e-4)
    G={"src":{"shape":[2,7],"ids":30},"tgt":{"shape":[2,5],"ids":30},"src_len":{"shape":[2],"value":5}}
    add("gnmt-foreach",lambda:gnmt("foreach"),G); add("gnmt-unrolled",lambda:gnmt("unrolled"),G)
    add("bilstm-varlen",bilstm_varlen,{"data":{"shape":[6,2,5],"offset":0.0,"scale":1.0},"len":{"shape":[2],"value":4}})
    add("transformer-encoder",encoder,{"data":{"shape":[2,10,24],"offset":0.0,"scale":1.0},"valid_length":{"shape":[2],"value":7}})
    for w in ("while","cond","nested","all"): add("control-"+w,lambda:whiles(w),{"data":{"shape":[2,6],"offset":0.0,"scale":1.0},**({k:{"shape":sh,"offset":0.0,"scale":0.5} for k,sh in WS[w].items()})})
    add("unrolled-cells",unrolled,{"data":{"shape":[2,5],"ids":20}},labels={"softmax_label":(2,5)})
    add("bidirectional-cells",bidir_unrolled,{"data":{"shape":[2,4],"ids":20}},labels={"softmax_label":()})
    add("text-cnn",textcnn,{"data":{"shape":[2,16],"ids":50}},labels={"softmax_label":()})
N.main(build)
